//! Creates the namespace and the objects of a run, and deletes them at the end.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt;
use kubefan_core::api::Resource;
use kubefan_core::body::empty;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream;
use kubefan_core::upstream::{Client, Identity};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::load::error::Error;
use crate::load::target::{json_request, request, server_error};
use crate::load::write::objects::{LOAD_TEST, MANAGED_BY_LABEL, Objects, RUN_LABEL, WITH_TEMPLATE};

const JSON: &str = "application/json";
const NAMESPACES: &str = "/api/v1/namespaces";
/// The time within which a new namespace must become usable; a controller has to create its service
/// account first.
const NAMESPACE_READY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// The time limit of the cleanup.
const CLEANUP: Duration = Duration::from_secs(30);
/// The time limit for a late execution: a request without an answer that has not been
/// executed by then never will be.
const IN_DOUBT_TIME: Duration = Duration::from_secs(3);
/// The number of objects that are created concurrently.
const CREATIONS: usize = 16;

/// The namespace and the objects of a run.
pub(super) struct TestNamespace {
    pub(super) client: Client,
    resource: Resource,
    pub(super) name: String,
    /// True if the user named the namespace, false if its name is generated.
    is_named: bool,
    ownership: Ownership,
    /// True while a pending or unanswered request may still create objects.
    is_in_doubt: bool,
    pub(super) objects: Objects,
}

/// Whether the run created the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// The run has not created the namespace.
    NotCreated,
    /// The run has sent the creation, and does not know whether the server executed it.
    Unknown,
    /// The run created the namespace and deletes it at the end.
    Owned,
    /// The namespace existed before the run, so only the run's objects are deleted.
    Existing,
}

impl TestNamespace {
    /// Uses the given namespace, or a generated name if it is `None`. Creates nothing on the server
    /// yet.
    pub(super) fn new(
        client: Client,
        resource: Resource,
        namespace: Option<&str>,
        objects: Objects,
    ) -> Self {
        let own = format!("{LOAD_TEST}-{}", objects.run);
        Self {
            client,
            resource,
            name: namespace.unwrap_or(&own).to_owned(),
            is_named: namespace.is_some(),
            ownership: Ownership::NotCreated,
            is_in_doubt: false,
            objects,
        }
    }

    /// Creates the namespace if it does not exist.
    ///
    /// If this is cancelled, the only method that may still be called is
    /// [`TestNamespace::clean_up`], which checks whether the namespace was created.
    pub(super) async fn prepare(&mut self) -> Result<(), Error> {
        let name = &self.name;
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": { MANAGED_BY_LABEL: LOAD_TEST, RUN_LABEL: self.objects.run } },
        });
        self.ownership = Ownership::Unknown;
        match post(&self.client, NAMESPACES, &manifest).await {
            Ok(_) => self.ownership = Ownership::Owned,
            // A user that may not create namespaces may have named an existing one.
            Err(error) if self.is_named && (is_code(&error, 409) || error.is_forbidden()) => {
                self.ownership = Ownership::Existing;
            }
            Err(error) => {
                if !is_in_doubt(&error) {
                    self.ownership = Ownership::NotCreated;
                }
                return Err(server_error(|| format!("create namespace {name}"))(error));
            }
        }
        Ok(())
    }

    /// Returns the URL path of the collection that holds the objects.
    pub(super) fn path(&self) -> String {
        self.resource.gvr.path(Some(&self.name))
    }

    /// Creates `count` objects of about `size` bytes as JSON, and returns the size of the first
    /// one. Stops with an error if `shutdown` begins to drain.
    ///
    /// If this is cancelled, the only method that may still be called is
    /// [`TestNamespace::clean_up`].
    pub(super) async fn fill(
        &mut self,
        count: u32,
        size: usize,
        shutdown: &Shutdown,
    ) -> Result<usize, Error> {
        let small = self.create_first(self.objects.probe(), shutdown).await?;
        let base = small.to_string().len();
        self.objects.filler = size.saturating_sub(base);
        self.delete_objects().await?;
        let first = self.create_first(self.objects.object(0), shutdown).await?;
        let mut numbers = 1..count;
        loop {
            let some: Vec<_> = numbers.by_ref().take(CREATIONS).collect();
            if some.is_empty() {
                return Ok(first.to_string().len());
            }
            if shutdown.is_draining() {
                return Err(Error::Interrupted);
            }
            self.is_in_doubt = true;
            let creations = some
                .into_iter()
                .map(|number| self.create(self.objects.object(number)));
            let created = join_all(creations).await;
            let failures = || created.iter().filter_map(|created| created.as_ref().err());
            self.is_in_doubt = failures().any(is_in_doubt);
            for created in created {
                created.map_err(server_error(|| self.creation()))?;
            }
        }
    }

    fn creation(&self) -> String {
        let name = self.resource.gvr.group_resource();
        format!(
            "create {name} (there are templates for {WITH_TEMPLATE}; objects of other resources have only metadata)"
        )
    }

    /// Creates an object. Retries for some seconds, because a new namespace may not be usable yet.
    async fn create_first(&mut self, object: Value, shutdown: &Shutdown) -> Result<Value, Error> {
        let deadline = Instant::now() + NAMESPACE_READY;
        loop {
            self.is_in_doubt = true;
            let created = self.create(object.clone()).await;
            self.is_in_doubt = created.as_ref().is_err_and(is_in_doubt);
            match created {
                Ok(object) => return Ok(object),
                Err(_) if shutdown.is_draining() => return Err(Error::Interrupted),
                Err(error)
                    if (error.is_forbidden() || error.is_not_found() || is_code(&error, 409))
                        && Instant::now() < deadline =>
                {
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(server_error(|| self.creation())(error)),
            }
        }
    }

    async fn create(&self, object: Value) -> Result<Value, upstream::Error> {
        post(&self.client, &self.path(), &object).await
    }

    async fn delete_objects(&self) -> Result<(), Error> {
        let selector = self.objects.label_selector().replace('=', "%3D");
        let path = format!(
            "{}?gracePeriodSeconds=0&labelSelector={selector}",
            self.path()
        );
        let deleted = delete(&self.client, &path).await;
        deleted.map_err(server_error(|| {
            format!("delete the objects in {}", self.name)
        }))
    }

    /// Deletes the objects, and the namespace if the run created it. Also deletes what an
    /// unanswered request may have created.
    ///
    /// # Errors
    ///
    /// If something may be left on the server. The message names the namespace and the problem.
    pub(super) async fn clean_up(&self) -> Result<(), Error> {
        let left = |error: &dyn std::fmt::Display| {
            Error::Refused(format!(
                "namespace {} could not be cleaned up, check it and delete what is left: {error}",
                self.name
            ))
        };
        match timeout(CLEANUP, self.clear()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Error::Server { what, source })) => {
                Err(left(&format!("cannot {what}: {source}")))
            }
            Ok(Err(error)) => Err(left(&error)),
            Err(_) => Err(left(&format!("it took longer than {CLEANUP:?}"))),
        }
    }

    async fn clear(&self) -> Result<(), Error> {
        match self.ownership {
            Ownership::NotCreated => Ok(()),
            Ownership::Existing => self.delete_all_objects().await,
            Ownership::Unknown if !self.has_appeared().await? => Ok(()),
            Ownership::Unknown => self.delete_namespace().await,
            Ownership::Owned => {
                // Deleting the objects is quicker than deleting the namespace, so this comes first.
                // The namespace takes the rest with it.
                let deleted = timeout(CLEANUP / 2, self.delete_objects()).await;
                tracing::debug!(?deleted, "tried to delete the objects");
                self.delete_namespace().await
            }
        }
    }

    /// Deletes all objects of the run, repeatedly while an unanswered request may still create one.
    async fn delete_all_objects(&self) -> Result<(), Error> {
        let from = Instant::now();
        loop {
            self.delete_objects().await?;
            if !self.is_in_doubt || from.elapsed() > IN_DOUBT_TIME {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits for a namespace after a creation without an answer. Returns whether
    /// this run created the namespace.
    async fn has_appeared(&self) -> Result<bool, Error> {
        let from = Instant::now();
        let path = format!("{NAMESPACES}/{}", self.name);
        loop {
            match self.client.get_json::<Value>(&path).await {
                Ok(found) => return Ok(found["metadata"]["labels"][RUN_LABEL] == *self.objects.run),
                Err(error) if error.is_not_found() && from.elapsed() > IN_DOUBT_TIME => {
                    return Ok(false);
                }
                Err(error) if error.is_not_found() || is_passing(&error) => sleep(PAUSE).await,
                Err(error) => {
                    return Err(server_error(|| "check if it was created".to_owned())(error));
                }
            }
        }
    }

    async fn delete_namespace(&self) -> Result<(), Error> {
        let path = format!("{NAMESPACES}/{}", self.name);
        match delete(&self.client, &path).await {
            Ok(()) => Ok(()),
            // The namespace is already being deleted: the answer to an earlier attempt was lost.
            Err(error) if is_code(&error, 409) => Ok(()),
            Err(error) => Err(server_error(|| "delete it".to_owned())(error)),
        }
    }
}

/// Returns true if the server may have executed the request although it failed.
fn is_in_doubt(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::Request(_) | upstream::Error::Unreachable(_) => false,
        error => error.status().is_none_or(|status| status.code >= 500),
    }
}

fn is_code(error: &upstream::Error, code: u16) -> bool {
    error.status().is_some_and(|status| status.code == code)
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value, upstream::Error> {
    let request = json_request(Method::POST, path, JSON, body.to_string())?;
    client.request_json(Identity::Kubefan, request).await
}

/// Sends a DELETE, and retries after temporary errors until the time limit of the cleanup.
async fn delete(client: &Client, path: &str) -> Result<(), upstream::Error> {
    let from = Instant::now();
    loop {
        match delete_once(client, path).await {
            Err(error) if is_passing(&error) && from.elapsed() < CLEANUP => {
                tracing::debug!(%error, path, "deleting again");
                sleep(error.retry_after().unwrap_or(PAUSE)).await;
            }
            Err(error) if error.is_not_found() => return Ok(()),
            deleted => return deleted,
        }
    }
}

async fn delete_once(client: &Client, path: &str) -> Result<(), upstream::Error> {
    let request = request(Method::DELETE, path, JSON, empty())?;
    let answer = client.request_success(Identity::Kubefan, request).await?;
    let read = answer.into_body().collect().await;
    read.map(drop).map_err(upstream::Error::Transport)
}

/// Returns true if a retry may succeed.
fn is_passing(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::Unreachable(_) => !error.is_connection_refused(),
        upstream::Error::Transport(_)
        | upstream::Error::InDoubt(_)
        | upstream::Error::Timeout(_) => true,
        _ => error
            .status()
            .is_some_and(|status| status.code == 429 || status.code >= 500),
    }
}
