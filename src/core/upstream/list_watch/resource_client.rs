//! Sends LIST and WATCH of one resource to the API server with kubefan's identity.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::freshness_probe::{FreshnessProbe, Scope};
use super::lister_watcher::{ListCall, ListerWatcher, ResumePoint, WatchCall};
use super::unproven_answers::UnprovenAnswers;
use super::watch_events::WatchEvents;
use super::watch_liveness::WatchLiveness;
use crate::api::{ListPage, Resource, ResourceVersion, WireFormat};
use crate::body::Body;
use crate::codec;
use crate::codec::Decoder;
use crate::upstream::connect::connection::last_read::LastRead;
use crate::upstream::{Client, Error, Identity, answer, client};

/// Maximum size in bytes of a page of a list that is read.
const LIST_LIMIT: usize = 1 << 30;
/// Time until the headers of a list without pages must arrive: older API servers encode all of it
/// first. The API server itself gives up after 60 s.
const WHOLE_LIST_TIMEOUT: Duration = Duration::from_secs(65);
/// A verification list of at most this number of bytes is decoded without a separate thread,
/// because decoding it takes only about a millisecond.
const MAX_INLINE_DECODE: usize = 64 << 10;
/// A watch may outlast its `timeoutSeconds` by this time.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// The `Accept` header of metadata lists; protobuf comes first, as it is a third of JSON's work.
const METADATA_MEDIA_TYPES: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The `Accept` header of a list of metadata only.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The `Accept` header of a watch of metadata only.
const METADATA_WATCH: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// The characters that are escaped in a path segment: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The connection and time limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// One page of a list.
    Page,
    /// A list without pages.
    WholeList,
    /// A watch.
    Watch,
}

/// A client for LIST and WATCH of one resource in one wire format; cheap to clone.
#[derive(Clone, Debug)]
pub struct ResourceClient {
    client: Client,
    resource: Arc<Resource>,
    /// The objects that lists and watches cover; all in the namespace by default.
    scope: Scope,
    format: WireFormat,
    /// True to request only the metadata of objects, in JSON.
    metadata_only: bool,
    decoder: Decoder,
    liveness: WatchLiveness,
    unproven: UnprovenAnswers,
}

impl ResourceClient {
    /// Creates a client for `resource` in `namespace` (`None`: in all). `decoder`
    /// must decode `format`.
    pub fn new(
        client: Client,
        resource: Arc<Resource>,
        namespace: Option<String>,
        format: WireFormat,
        decoder: Decoder,
    ) -> Self {
        let scope = Scope {
            namespace,
            ..Scope::default()
        };
        Self {
            client,
            resource,
            scope,
            format,
            metadata_only: false,
            decoder,
            liveness: WatchLiveness::default(),
            unproven: UnprovenAnswers::default(),
        }
    }

    /// Requests only the metadata of objects if `metadata_only`. The client's format must be JSON.
    #[must_use]
    pub fn with_metadata_only(mut self, metadata_only: bool) -> Self {
        self.metadata_only = metadata_only;
        self
    }

    /// Records in `liveness` when lists and watches were last proven alive.
    pub fn with_liveness(mut self, liveness: WatchLiveness) -> Self {
        self.liveness = liveness;
        self
    }

    /// Returns this client, limited to the objects in `scope`, and without the recording of
    /// liveness. A namespace of this client has priority, and its selectors remain.
    #[must_use]
    pub fn in_scope(&self, scope: &Scope) -> Self {
        let namespace = self.scope.namespace.as_ref().or(scope.namespace.as_ref());
        let both = |own: &str, other: &str| match (own, other) {
            ("", selector) | (selector, "") => selector.to_owned(),
            (own, other) => format!("{own},{other}"),
        };
        let scope = Scope {
            namespace: namespace.cloned(),
            label_selector: both(&self.scope.label_selector, &scope.label_selector),
            field_selector: both(&self.scope.field_selector, &scope.field_selector),
        };
        Self {
            scope,
            liveness: WatchLiveness::default(),
            ..self.clone()
        }
    }

    /// Sends a GET of the collection with `query` and records the answer's warnings. The result is
    /// an error unless the answer is a success in the client's wire format. The answer's headers
    /// must arrive within the client's limit, or that of [`WHOLE_LIST_TIMEOUT`].
    async fn get(&self, query: &str, kind: RequestKind) -> Result<Response<Body>, Error> {
        let path = self.path();
        let selectors = selectors_query(&self.scope);
        let selectors = match selectors.as_str() {
            "" => selectors,
            _ => format!("&{selectors}"),
        };
        let requested = self.format.media_type();
        let accept = match (self.metadata_only, kind) {
            (false, _) => requested,
            (true, RequestKind::Watch) => METADATA_WATCH,
            (true, RequestKind::Page | RequestKind::WholeList) => METADATA_LIST,
        };
        let request = client::get(&format!("{path}?{query}{selectors}"), accept)?;
        let client = &self.client;
        let response = match kind {
            RequestKind::Watch => {
                let sent = client.request_alone(Identity::Kubefan, request);
                client.in_time(sent).await?
            }
            RequestKind::Page => {
                let sent = client.request_http1(Identity::Kubefan, request);
                client.in_time(sent).await?
            }
            RequestKind::WholeList => {
                let sent = client.request_http1(Identity::Kubefan, request);
                client::answered_within(WHOLE_LIST_TIMEOUT, sent).await?
            }
        };
        let response = answer::success(response).await?;
        let warnings = self.client.warnings();
        warnings.record(&self.resource.gvr, response.headers());
        wire_format(&response, requested, &[self.format])?;
        Ok(response)
    }

    fn path(&self) -> String {
        let namespace = self.scope.namespace.as_deref();
        let escaped = namespace.map(|name| utf8_percent_encode(name, SEGMENT).to_string());
        self.resource.gvr.path(escaped.as_deref())
    }
}

impl ResourceClient {
    /// Requests a page of a list. Its body is not received yet.
    async fn page(&self, request: &ListCall) -> Result<Response<Body>, Error> {
        let kind = match request.limit {
            0 => RequestKind::WholeList,
            _ => RequestKind::Page,
        };
        self.get(&list_query(request), kind).await
    }

    /// Receives the body of a page, and decodes it meanwhile.
    async fn decoded(&self, response: Response<Body>) -> Result<ListPage, Error> {
        let decode = |error: codec::Error| Error::Decode(error.into());
        let mut list = self.decoder.list_decoder();
        answer::each_chunk(response.into_body(), LIST_LIMIT, |chunk| {
            list.push(&chunk).map_err(decode)
        })
        .await?;
        list.finish().map_err(decode)
    }
}

impl ListerWatcher for ResourceClient {
    type Events = WatchEvents;

    async fn list(&self, request: ListCall) -> Result<ListPage, Error> {
        let response = self.page(&request).await?;
        // The pages after the first one are of its version.
        if request.continue_token.is_none() {
            self.unproven.note(response.headers());
        }
        let page = self.decoded(response).await?;
        self.liveness.listed();
        Ok(page)
    }

    async fn watch(&self, request: WatchCall) -> Result<WatchEvents, Error> {
        let response = self.get(&watch_query(&request), RequestKind::Watch).await?;
        if request.start == ResumePoint::InitialEvents {
            self.unproven.note(response.headers());
        }
        let longest = request.timeout + WATCH_GRACE;
        let decoder = self.decoder.clone();
        let (parts, body) = response.into_parts();
        let last_read = parts.extensions.get::<LastRead>();
        let open = last_read.map(|last_read| self.liveness.opened(last_read.clone()));
        Ok(WatchEvents::new(body, self.format, decoder, longest, open))
    }

    /// Requests the current version. Unlike a list, a barrier does not prove that a watch is alive.
    /// A kubefan upstream may answer with an older version: the watch that follows shows the rest.
    async fn barrier(&self) -> Result<ResourceVersion, Error> {
        let response = self.page(&ListCall::barrier()).await?;
        Ok(self.decoded(response).await?.resource_version)
    }
}

impl FreshnessProbe for ResourceClient {
    async fn barrier(&self) -> Result<ResourceVersion, Error> {
        let response = self.page(&ListCall::barrier()).await?;
        self.unproven
            .check(response.headers(), &self.resource.gvr)?;
        Ok(self.decoded(response).await?.resource_version)
    }

    async fn verification_list(&self, scope: &Scope) -> Result<ListPage, Error> {
        let scoped = self.in_scope(scope);
        let path = scoped.path();
        let request = client::get(
            &format!("{path}?{}", selectors_query(&scoped.scope)),
            METADATA_MEDIA_TYPES,
        )?;
        let sent = self.client.request_success(Identity::Kubefan, request);
        let response = sent.await?;
        self.unproven
            .check(response.headers(), &self.resource.gvr)?;
        let formats = [WireFormat::Protobuf, WireFormat::Json];
        let format = wire_format(&response, METADATA_MEDIA_TYPES, &formats)?;
        let body = answer::collect(response.into_body(), LIST_LIMIT).await?;
        let is_long = body.len() > MAX_INLINE_DECODE;
        let decode = move || Decoder::new(format, Arc::default()).list_without_bodies(&body);
        // Decoding a long list would delay the watches on this worker thread.
        let page = if is_long {
            spawn_blocking(decode)
                .await
                .map_err(|error| Error::Decode(error.into()))?
        } else {
            decode()
        };
        page.map_err(|error| Error::Decode(error.into()))
    }

    fn unproven_at(&self) -> Option<Instant> {
        self.unproven.last()
    }
}

/// Returns the one of `formats` that an answer to a request for `requested` has.
fn wire_format(
    response: &Response<Body>,
    requested: &'static str,
    formats: &[WireFormat],
) -> Result<WireFormat, Error> {
    let received = answer::content_type(response.headers());
    let media_type = received.split(';').next().unwrap_or_default().trim();
    let mut formats = formats.iter().copied();
    let format = formats.find(|format| format.media_type() == media_type);
    format.ok_or_else(|| Error::MediaType {
        requested,
        received: received.to_owned(),
    })
}

fn selectors_query(scope: &Scope) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let selectors = [
        ("labelSelector", &scope.label_selector),
        ("fieldSelector", &scope.field_selector),
    ];
    for (name, selector) in selectors {
        if !selector.is_empty() {
            query.append_pair(name, selector);
        }
    }
    query.finish()
}

fn list_query(request: &ListCall) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if request.limit > 0 {
        query.append_pair("limit", &request.limit.to_string());
    }
    if let Some(token) = &request.continue_token {
        query.append_pair("continue", token);
    }
    query.finish()
}

fn watch_query(request: &WatchCall) -> String {
    let seconds = request.timeout.as_secs().max(1);
    let watch = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
    match request.start {
        ResumePoint::After(version) => format!("{watch}&resourceVersion={version}"),
        ResumePoint::InitialEvents => {
            format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        }
    }
}

#[cfg(test)]
mod tests;
