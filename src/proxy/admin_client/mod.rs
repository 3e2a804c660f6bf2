//! The client of a running kubefan, for the subcommands that ask one: its admin listener by a URL,
//! with the credentials of a kubeconfig.
//!
//! On loopback kubefan answers everyone, and nothing is read for it. Over TLS the credentials of the
//! kubeconfig are sent, as kubectl sends them to the API server. Over plain HTTP to another machine
//! none are sent.

mod args;
mod error;
mod events;

use std::time::Duration;

use anyhow::Context;
pub use args::AdminArgs;
pub use error::Error;
pub use events::Events;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderValue, Request, Response};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::upstream::{Client, Identity, collect};
use serde_json::Value;
use tokio::time::timeout;

use crate::process;

/// Time limit for the headers of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a page that are read.
const MOST_BYTES: usize = 64 << 20;
const OUR_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("kubefan/", env!("CARGO_PKG_VERSION")));

/// The client of a running kubefan.
#[derive(Clone, Debug)]
pub struct AdminClient {
    client: Client,
}

// === impl AdminClient ===

impl AdminClient {
    /// Makes a client as the flags say. It opens no connection yet. If the kubeconfig has an exec
    /// plugin, this call runs it, and the plugin may use the terminal.
    ///
    /// # Errors
    /// [`process::Error::Usage`] if the flags contradict each other, or would send credentials over
    /// plain HTTP to another machine; [`process::Error::Failed`] if the kubeconfig, the token or the
    /// certificates can't be used.
    pub async fn connect(args: &AdminArgs) -> Result<Self, process::Error> {
        args.check()?;
        let client = args.client().await.context("cannot ask kubefan")?;
        Ok(Self { client })
    }

    /// Returns the URL of the admin listener, without a slash at its end.
    pub fn url(&self) -> &str {
        self.client.server()
    }

    /// Returns the JSON of a GET of `path`, which begins with a slash and may have a query.
    ///
    /// # Errors
    /// If there is no answer, or one with another status than 2xx, or one that is not JSON or has
    /// more than 64 MiB.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        let response = self.send(path, HeaderValue::from_static("application/json"));
        let body = collect(response.await?.into_body(), MOST_BYTES).await?;
        serde_json::from_slice(&body).map_err(Error::Malformed)
    }

    /// Opens the stream of snapshots.
    ///
    /// # Errors
    /// If there is no answer, or one with another status than 2xx.
    pub async fn events(&self) -> Result<Events, Error> {
        let accept = HeaderValue::from_static("text/event-stream");
        let response = self.send("/admin/v1/events", accept).await?;
        Ok(Events::new(response.into_body()))
    }

    async fn send(&self, path: &str, accept: HeaderValue) -> Result<Response<Body>, Error> {
        let request = Request::get(path)
            .header(ACCEPT, accept)
            .header(USER_AGENT, OUR_USER_AGENT)
            .body(body::empty());
        let request = request.map_err(|error| Error::Failed(error.into()))?;
        // The admin listener has HTTP/1.1 only.
        let sent = self.client.request_http1(Identity::Kubefan, request);
        let answered = timeout(ANSWER_TIMEOUT, sent).await;
        let response = answered.map_err(|_| Error::Timeout(ANSWER_TIMEOUT))??;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = collect(response.into_body(), MOST_BYTES).await?;
        Err(Error::answered(status, &body))
    }
}
