//! Fetches all documents of OpenAPI v3 after a client has read their index.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use kubefan_core::body::Body;
use kubefan_core::shutdown::{Phase, Shutdown};
use kubefan_core::upstream::{Error, Forwarder, Identity};
use kubefan_core::{body, upstream};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Documents;
use super::key::{DocumentKey, OPENAPI_V3, VersionHash};
use super::memory::Document;
use crate::server::request::RequestInfo;

/// The shortest time between two runs, unless a client reads documents in a new format.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest time for one document.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The format in which `kubectl explain` reads documents.
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The format in which kubectl reads documents to check objects.
const PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/com.github.proto-openapi.spec.v3@v1.0+protobuf");
/// The encoding that Go's clients accept.
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Fetches documents in the background, with kubefan's identity.
pub(super) struct Prefetch {
    forwarder: Forwarder,
    shutdown: Shutdown,
    state: Mutex<State>,
    /// Notified when a client has read the first document in protobuf during a run.
    has_new_format: Notify,
}

#[derive(Default)]
struct State {
    /// True if clients have read documents in protobuf.
    needs_protobuf: bool,
    /// True if clients have read the index or a new format since the last run began.
    is_due: bool,
    is_running: bool,
}

/// The index of the documents.
#[derive(Deserialize)]
struct Index {
    paths: BTreeMap<String, IndexEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexEntry {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

impl Prefetch {
    pub(super) fn new(forwarder: Forwarder, shutdown: Shutdown) -> Self {
        Self {
            forwarder,
            shutdown,
            state: Mutex::default(),
            has_new_format: Notify::new(),
        }
    }

    /// Starts to fetch the documents that are missing in `documents`, if the API server has just
    /// answered a request for their index, or the first request for a document in protobuf.
    pub(super) fn after(&self, documents: &Documents, key: &DocumentKey) {
        let mut state = self.state.lock();
        let is_first = !state.needs_protobuf && key.is_openapi_in(&PROTOBUF);
        if !is_first && !key.is_openapi_index() {
            return;
        }
        state.needs_protobuf |= is_first;
        state.is_due = true;
        if !std::mem::replace(&mut state.is_running, true) {
            let documents = documents.clone();
            let run = async move { documents.inner.prefetch.run(&documents).await };
            // A runtime that is shutting down drops the task while it is spawned.
            drop(state);
            self.shutdown.spawn_background(run);
        } else if is_first {
            self.has_new_format.notify_one();
        }
    }

    async fn run(&self, documents: &Documents) {
        while let Some(formats) = self.next_run() {
            if let Err(error) = self.fetch_all(documents, &formats).await {
                // The next reader of the index starts another run.
                tracing::debug!(%error, "fetching the documents of OpenAPI v3 failed");
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = self.has_new_format.notified() => {}
                () = self.shutdown.reached(Phase::EndWatches) => return,
            }
        }
    }

    /// Returns the formats of the next run; `None` if no run is due.
    fn next_run(&self) -> Option<Vec<HeaderValue>> {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.is_due) {
            state.is_running = false;
            return None;
        }
        Some(if state.needs_protobuf {
            vec![JSON, PROTOBUF]
        } else {
            vec![JSON]
        })
    }

    async fn fetch_all(&self, documents: &Documents, formats: &[HeaderValue]) -> Result<(), Error> {
        let most = documents.inner.memory.max_document();
        let index = self.fetch(request(OPENAPI_V3, &JSON), most).await?;
        let index: Index = match index {
            Some((_, body)) => {
                serde_json::from_slice(&body).map_err(|error| Error::Decode(error.into()))?
            }
            None => return Ok(()),
        };
        for format in formats {
            for entry in index.paths.values() {
                let mut request = request(&entry.server_relative_url, format);
                request.headers_mut().insert(header::ACCEPT_ENCODING, GZIP);
                let Some((key, hash)) = documents.missing(&request) else {
                    continue;
                };
                match self.fetch(request, most).await {
                    Ok(Some((headers, body))) => {
                        documents.inner.metrics.fetched.inc();
                        let document = Document::new(&headers, body, hash);
                        if !documents.inner.memory.put_if_room(key, document) {
                            tracing::debug!("there is no room for all documents of OpenAPI v3");
                            return Ok(());
                        }
                    }
                    Ok(None) => {}
                    // The other documents may be answered. The next run tries this document again.
                    Err(error) => tracing::debug!(%error, "fetching a document failed"),
                }
            }
        }
        Ok(())
    }

    /// Returns the headers and the body of the answer to `request`; `None` unless its status is
    /// 200. The body may have at most `most` bytes.
    async fn fetch(
        &self,
        request: Request<Body>,
        most: usize,
    ) -> Result<Option<(HeaderMap, bytes::Bytes)>, Error> {
        let fetching = async {
            let forwarded = self.forwarder.forward(request, Identity::Kubefan).await?;
            let (parts, body) = Response::into_parts(forwarded.response);
            let body = upstream::collect(body, most).await?;
            Ok((parts.status == StatusCode::OK).then_some((parts.headers, body)))
        };
        let fetched = timeout(TIMEOUT, fetching).await;
        fetched.unwrap_or(Err(Error::Timeout(TIMEOUT)))
    }
}

impl Documents {
    /// Returns the key and version of the document that `request` asks for, if it is not
    /// remembered.
    fn missing(&self, request: &Request<Body>) -> Option<(DocumentKey, VersionHash)> {
        let info = RequestInfo::parse(request.method(), request.uri().path(), "");
        let inner = &self.inner;
        let (key, hash) = DocumentKey::of(request, &info, &*inner.is_native)?;
        let is_missing = inner.memory.get(&key, &hash).is_none();
        is_missing.then_some((key, hash))
    }
}

/// Makes a GET of `target`. No document matches a malformed target.
fn request(target: &str, accept: &HeaderValue) -> Request<Body> {
    let mut request = Request::new(body::empty());
    *request.uri_mut() = target.parse().unwrap_or_default();
    let headers = request.headers_mut();
    headers.insert(header::ACCEPT, accept.clone());
    request
}
