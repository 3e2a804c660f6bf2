//! One handler a verb; each answers from a cache, or says why it can't.

pub(super) mod forward;
pub(super) mod get;
pub(super) mod list;
pub(super) mod watch;

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::Response;
use http::Version;
use tokio::sync::Semaphore;

use crate::api::ListOptions;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::Status;
use crate::api::WireFormat;
use crate::body::Body;
use crate::codec::Encoder;
use crate::codec::Representation;
use crate::codec::View;
use crate::informer::Subject;

use super::chunks::Chunks;
use super::collection::Collection;
use super::gzip;
use super::renderings::Renderings;
use super::request_info::RequestInfo;
use super::rescue;
use super::router::Authority;
use super::router::Reason;
use super::websocket::Handshake;

/// A read of a resource that may be cached.
pub(super) struct ReadRequest<'a> {
    /// Resource, and the format of the cache.
    pub subject: &'a Subject,
    /// How the answer shows objects.
    pub representation: Representation,
    /// The request's attributes.
    pub info: &'a RequestInfo,
    /// What stands behind `?`.
    pub query: &'a str,
    /// Whether the cache is the truth, or only follows it.
    pub authority: Authority,
    /// Where long lists are compressed, if the client accepts that.
    pub renderings: Option<&'a Renderings>,
    /// As [`Delivery::is_framed`].
    pub is_framed: bool,
    /// As [`Delivery::one_by_one`].
    pub one_by_one: bool,
}

/// How an answer travels to its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// The client accepts gzip.
    pub is_gzip_accepted: bool,
    /// In HTTP/2, where each frame of a body costs as much as some KiB.
    pub is_framed: bool,
    /// Over a WebSocket, where each event of a watch is a message, even where several are there.
    pub one_by_one: bool,
}

/// Why a cache gave no answer.
#[derive(Debug)]
pub(super) enum Miss {
    /// The API server is to be asked.
    Forward(Reason),
    /// As well, for want of a proof, as many at a time as there are permits.
    ForwardUnproven(Arc<Semaphore>),
    /// The request is at fault, or can't be answered now.
    Reject(Box<Status>),
}

/// What a cache must have to answer a LIST or WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Proof that it has the most recent state.
    Consistent,
    /// A past state, which only a cache that runs already can have.
    Past,
    /// A state at least this new.
    NotOlderThan(ResourceVersion),
}

/// An answer from a cache.
pub(super) type Answer = Result<Response<Body>, Miss>;

impl Delivery {
    /// Of the answer to `request`.
    pub(super) fn of(request: &Request<Body>) -> Self {
        Self {
            is_gzip_accepted: gzip::is_accepted(request),
            is_framed: request.version() == Version::HTTP_2,
            one_by_one: Handshake::possible(request).is_some(),
        }
    }
}

impl ReadRequest<'_> {
    /// The namespace asked for; `None` for all, and for cluster scope.
    ///
    /// # Errors
    ///
    /// When the URL's scope is not that of the resource, which the API server answers best.
    pub(super) fn namespace(&self) -> Result<Option<&str>, Miss> {
        let namespace = Some(self.info.namespace.as_str()).filter(|name| !name.is_empty());
        let resource = &self.subject.resource;
        match namespace {
            Some(_) if resource.namespaced => Ok(namespace),
            None => Ok(None),
            // A Namespace's own URL, which reads as if it lay in itself.
            Some(_) if self.is_own_namespace() => Ok(None),
            Some(_) => Err(Miss::Forward(Reason::NotCacheable)),
        }
    }

    /// True for `/api/v1/namespaces/NAME`, but not for `/api/v1/namespaces/NAME/nodes/NAME`, which
    /// there is not.
    fn is_own_namespace(&self) -> bool {
        let gvr = &self.subject.resource.gvr;
        let is_of_namespaces = gvr.group.is_empty() && gvr.resource == "namespaces";
        let levels = self.info.path.matches("/namespaces/").count();
        is_of_namespaces && levels == 1 && self.info.namespace == self.info.name
    }

    /// The name in a deprecated `/watch/…/NAME` path.
    ///
    /// # Errors
    ///
    /// When the name lies in another scope than the resource, which the API server answers best.
    fn watched_name(&self) -> Result<Option<&str>, Miss> {
        let name = Some(self.info.name.as_str());
        let name = name.filter(|name| self.info.watch_path && !name.is_empty());
        let is_in_scope = self.subject.resource.namespaced == self.namespace()?.is_some();
        match name {
            Some(_) if !is_in_scope => Err(Miss::Forward(Reason::NotCacheable)),
            name => Ok(name),
        }
    }

    /// The format of the answer.
    pub(super) fn format(&self) -> WireFormat {
        self.representation.format
    }

    /// What prints objects of `collection` as the request wants them.
    pub(super) fn encoder(&self, collection: &dyn Collection) -> Arc<Encoder> {
        encoder(collection, self.representation)
    }

    /// `parts`, which are `length` bytes, as the request wants them.
    pub(super) fn chunks<P>(&self, parts: P, length: u64) -> Chunks<P>
    where
        P: Iterator<Item = Bytes> + Send + Unpin + 'static,
    {
        let chunks = Chunks::new(parts, length);
        match self.representation.indent {
            true => chunks.indented(),
            false => chunks,
        }
    }

    /// The answer with `chunks`.
    pub(super) fn answer<P>(&self, chunks: Chunks<P>) -> Response<Body>
    where
        P: Iterator<Item = Bytes> + Send + Unpin + 'static,
    {
        self.response(match self.is_framed {
            true => chunks.gathered(),
            false => chunks.boxed(),
        })
    }

    /// The answer with `body`.
    pub(super) fn response(&self, body: Body) -> Response<Body> {
        rescue::answer(self.format().media_type(), body)
    }

    /// The resource's name in messages.
    pub(super) fn resource(&self) -> &Arc<crate::api::Resource> {
        &self.subject.resource
    }
}

/// What prints objects of `collection` in `representation`.
pub(super) fn encoder(collection: &dyn Collection, representation: Representation) -> Arc<Encoder> {
    let encoder = collection.encoder();
    match representation.view {
        View::Whole => encoder,
        View::Metadata(version) => Arc::new(encoder.partial(representation.format, version)),
    }
}

/// What the options select of the resource.
///
/// # Errors
///
/// A field that our table lacks may be one that the API server has, of another version or of a
/// definition that changed just now: it is asked, and words the refusal if it refuses.
pub(super) fn selection(
    options: &ListOptions,
    namespace: Option<&str>,
    request: &ReadRequest<'_>,
) -> Result<Selection, Miss> {
    let fields = &request.subject.fields;
    let selection = options.selection(namespace, None, fields);
    let selection = selection.map_err(|refusal| match request.authority {
        Authority::Cache => Miss::Forward(Reason::UnknownField),
        Authority::Truth => refusal.into(),
    })?;
    match request.watched_name()? {
        None => Ok(selection),
        // What it refuses now is a contradiction, and no field that we may not know.
        name => Ok(options.selection(namespace, name, fields)?),
    }
}

impl From<Status> for Miss {
    fn from(status: Status) -> Self {
        Self::Reject(Box::new(status))
    }
}

impl From<Reason> for Miss {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}
