//! Exchange: a request, and what kubefan has found out about it.

use std::mem;
use std::sync::Arc;

use http::Request;
use kubefan_core::api::Query;
use kubefan_core::body;
use kubefan_core::body::Body;

use super::RequestInfo;
use crate::identity::Caller;
use crate::net::ClientHandle;
use crate::server::answers::answer::{Answer, Waits};
use crate::server::answers::ending::Ending;
use crate::server::answers::outcome::Call;
use crate::server::answers::rescue::{ErrorFormat, Refused};
use crate::server::limits::crowds::WaitingRead;
use crate::server::limits::in_flight::Holder;
use crate::server::limits::shares::RequestShare;
use crate::traces::RequestTrace;

/// A request on its way to its answer. Each stage adds what it finds out.
pub(in crate::server) struct Exchange {
    /// The request, until it is forwarded.
    pub(in crate::server) request: Request<Body>,
    pub(in crate::server) info: Arc<RequestInfo>,
    /// Where the request came from.
    pub(in crate::server) client: ClientHandle,
    /// The format of an error.
    pub(in crate::server) errors: ErrorFormat,
    /// Who sent the request. Until kubefan has determined that, only the API server can judge it.
    pub(in crate::server) caller: Caller,
    /// The place among the requests of the user, if kubefan has determined the user.
    pub(in crate::server) share: Option<RequestShare>,
    /// Counts the read as waiting until the head of its answer is there, if crowds are counted.
    pub(in crate::server) waiting: Option<WaitingRead>,
    /// How long the stages for a read from a cache took.
    pub(in crate::server) waits: Waits,
    /// What came of forwarding the request.
    pub(in crate::server) call: Call,
    /// The trace of the request, if it is recorded.
    pub(in crate::server) trace: Option<Arc<RequestTrace>>,
    /// The end of the answer, if something wants the record of the request then.
    pub(in crate::server) ending: Option<Arc<Ending>>,
}

impl Exchange {
    /// Starts the exchange of a request that `net` has received. The exchange is boxed, because it
    /// is long, and many functions pass it on.
    ///
    /// # Panics
    /// If the request has no [`ClientHandle`].
    pub(in crate::server) fn of(mut request: Request<Body>) -> Box<Self> {
        let client = request.extensions_mut().remove::<ClientHandle>();
        let query = request.uri().query().unwrap_or_default();
        Box::new(Self {
            info: Arc::new(RequestInfo::parse(
                request.method(),
                request.uri().path(),
                query,
            )),
            client: client.expect("net adds it to every request"),
            errors: ErrorFormat::of(&request),
            request,
            caller: Caller::Unknown,
            share: None,
            waiting: None,
            waits: Waits::default(),
            call: Call::default(),
            trace: None,
            ending: None,
        })
    }

    /// Parses the query string. The result may be many times longer than the request, and is not
    /// charged. So it must be dropped before anything is waited for.
    pub(in crate::server) fn query(&self) -> Query {
        Query::parse(self.request.uri().query().unwrap_or_default())
    }

    /// Returns the holder of what the request takes of limited resources.
    pub(in crate::server) fn holder(&self) -> Holder {
        Holder::of(&self.caller, &self.client.connection)
    }

    /// Takes the request, to forward it.
    pub(in crate::server) fn take_request(&mut self) -> Request<Body> {
        mem::replace(&mut self.request, Request::new(body::empty()))
    }

    /// Returns kubefan's own answer: `refused` in the format that the request accepts.
    pub(in crate::server) fn refuse(&self, refused: impl Into<Refused>) -> Answer {
        Answer::refused(&self.errors, &refused.into())
    }
}
