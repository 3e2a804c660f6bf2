//! The connection of an agent, which all of its requests share.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kubefan_core::body::{Body, empty};
use kubefan_core::upstream::{Client, Error, HttpVersion};

use super::Counters;
use crate::load::Slot;

/// Flow-control windows, in bytes: those of Go's HTTP/2 client for a stream and for the connection.
const HTTP2: HttpVersion = HttpVersion::Http2 {
    stream_window: 4 << 20,
    connection_window: 16 << 20,
};

/// The connection of one agent. It is opened on first use, and again after it broke.
pub(super) struct Connection {
    client: Client,
    slot: Slot,
    pub(super) totals: Arc<Counters>,
}

impl Connection {
    pub(super) fn new(client: Client, totals: Arc<Counters>) -> Self {
        Self {
            client,
            slot: Slot::new(HTTP2),
            totals,
        }
    }

    /// Sends a GET, and returns a successful answer.
    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Response<Body>, Error> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(USER_AGENT, "kubefan-demo-agent")
            .header(ACCEPT, accept)
            .body(empty())
            .map_err(|error| Error::Request(error.into()))?;
        Counters::add(&self.totals.requests, 1);
        let sent = async {
            let connection = self.slot.connection(&self.client).await?;
            self.client.request_over(&connection, request).await
        };
        let answer = sent.await;
        if answer.is_err() {
            Counters::add(&self.totals.refused, 1);
        }
        answer
    }

    /// Reads the next bytes of an answer and counts them. Returns `None` at its end.
    pub(super) async fn chunk(&self, body: &mut Body) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = body.frame().await {
            if let Ok(bytes) = frame.map_err(Error::Transport)?.into_data() {
                Counters::add(&self.totals.bytes, bytes.len() as u64);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
