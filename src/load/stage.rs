//! What a run leaves behind for as long as it lasts: a namespace and objects.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use serde_json::json;
use tokio::time::Instant;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::api::Resource;
use crate::upstream;
use crate::upstream::Client;
use crate::upstream::Identity;
use crate::upstream::empty;

use super::Error;
use super::objects::MANAGED_BY;
use super::objects::Objects;
use super::objects::RUN;
use super::objects::US;
use super::objects::WITH_TEMPLATE;
use super::target::failed;
use super::target::json_request;
use super::target::not_a_path;
use super::target::request;

const JSON: &str = "application/json";
/// Time in which a new namespace has to become usable: its service account is made by a controller.
const NAMESPACE_READY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// Time for all of the cleaning up.
const CLEANUP: Duration = Duration::from_secs(30);
/// Creations under way at a time.
const CREATIONS: usize = 16;

/// The namespace and the objects of a run.
pub(super) struct Stage {
    client: Client,
    resource: Resource,
    pub(super) namespace: String,
    /// False when the namespace was there before.
    is_ours: bool,
    pub(super) objects: Objects,
}

impl Stage {
    /// Makes the namespace, unless it is there.
    pub(super) async fn prepare(
        client: Client,
        resource: Resource,
        namespace: Option<&str>,
        objects: Objects,
    ) -> Result<Self, Error> {
        let own = format!("{US}-{}", objects.run);
        let name = namespace.unwrap_or(&own).to_owned();
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": { MANAGED_BY: US, RUN: objects.run } },
        });
        let created = send(&client, Method::POST, "/api/v1/namespaces", &manifest).await;
        let is_ours = match created {
            Ok(_) => true,
            // Who may not make namespaces may have been given one.
            Err(Failure::Server(error))
                if namespace.is_some() && (is_code(&error, 409) || error.is_forbidden()) =>
            {
                false
            }
            Err(failure) => return Err(failure.named(|| format!("create namespace {name}"))),
        };
        Ok(Self {
            client,
            resource,
            namespace: name,
            is_ours,
            objects,
        })
    }

    /// The path of the objects.
    pub(super) fn path(&self) -> String {
        self.resource.gvr.path(Some(&self.namespace))
    }

    /// Makes `count` objects of `size` bytes, as near as their filler lets them come; gives the size that
    /// they have.
    pub(super) async fn fill(&mut self, count: u32, size: usize) -> Result<usize, Error> {
        let small = self.create_first(self.objects.probe()).await?;
        let base = small.to_string().len();
        self.objects = self.objects.clone().with_filler(size.saturating_sub(base));
        self.delete_objects().await?;
        let first = self.create_first(self.objects.object(0)).await?;
        let mut numbers = 1..count;
        loop {
            let some = numbers.by_ref().take(CREATIONS);
            let creations: Vec<_> = some
                .map(|number| self.create(self.objects.object(number)))
                .collect();
            if creations.is_empty() {
                return Ok(first.to_string().len());
            }
            for created in futures_util::future::join_all(creations).await {
                created.map_err(|failure| failure.named(|| self.creation()))?;
            }
        }
    }

    fn creation(&self) -> String {
        let name = self.resource.gvr.group_resource();
        format!(
            "create {name} (there are templates for {WITH_TEMPLATE}; others are made of metadata alone)"
        )
    }

    /// Creates an object; patient, as a namespace may not be usable yet.
    async fn create_first(&self, object: Value) -> Result<Value, Error> {
        let deadline = Instant::now() + NAMESPACE_READY;
        loop {
            match self.create(object.clone()).await {
                Ok(object) => return Ok(object),
                Err(Failure::Server(error))
                    if (error.is_forbidden() || error.is_not_found() || is_code(&error, 409))
                        && Instant::now() < deadline =>
                {
                    sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure.named(|| self.creation())),
            }
        }
    }

    async fn create(&self, object: Value) -> Result<Value, Failure> {
        send(&self.client, Method::POST, &self.path(), &object).await
    }

    async fn delete_objects(&self) -> Result<(), Error> {
        let selector = self.objects.label_selector().replace('=', "%3D");
        let path = format!(
            "{}?gracePeriodSeconds=0&labelSelector={selector}",
            self.path()
        );
        let deleted = delete(&self.client, &path).await;
        deleted.map_err(|failure| {
            failure.named(|| format!("delete the objects in {}", self.namespace))
        })
    }

    /// Deletes the objects, and the namespace if it is the run's own.
    ///
    /// # Errors
    ///
    /// When something may be left; the message says what.
    pub(super) async fn clean_up(&self) -> Result<(), Error> {
        let left = |error: &dyn std::fmt::Display| {
            Error::Refused(format!(
                "namespace {} could not be cleaned up, please look after it: {error}",
                self.namespace
            ))
        };
        let cleaned = timeout(CLEANUP, async {
            let objects = self.delete_objects().await;
            if !self.is_ours {
                return objects;
            }
            // With it goes what could not be deleted in it.
            let path = format!("/api/v1/namespaces/{}", self.namespace);
            let deleted = delete(&self.client, &path).await;
            deleted.map_err(|failure| failure.named(|| "delete it".to_owned()))
        });
        match cleaned.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Error::Server { what, source })) => {
                Err(left(&format!("cannot {what}: {source}")))
            }
            Ok(Err(error)) => Err(left(&error)),
            Err(_) => Err(left(&format!("it took longer than {CLEANUP:?}"))),
        }
    }
}

enum Failure {
    Path(http::Error),
    Server(upstream::Error),
}

impl Failure {
    fn named(self, what: impl FnOnce() -> String) -> Error {
        match self {
            Self::Path(error) => not_a_path(&error),
            Self::Server(error) => failed(what)(error),
        }
    }
}

fn is_code(error: &upstream::Error, code: u16) -> bool {
    error.status().is_some_and(|status| status.code == code)
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
    let request = json_request(method, path, JSON, body.to_string()).map_err(Failure::Path)?;
    let answer = client.request_json(Identity::Kubefan, request).await;
    answer.map_err(Failure::Server)
}

async fn delete(client: &Client, path: &str) -> Result<(), Failure> {
    let request = request(Method::DELETE, path, JSON, empty()).map_err(Failure::Path)?;
    let answer = client.request_success(Identity::Kubefan, request).await;
    let answer = answer.map_err(Failure::Server)?;
    let read = answer.into_body().collect().await;
    read.map(drop)
        .map_err(|error| Failure::Server(upstream::Error::Transport(error)))
}
