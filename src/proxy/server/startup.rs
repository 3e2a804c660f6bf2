//! Startup: answers requests before the API server has answered kubefan.
//!
//! The listeners are open before the API server has answered. Until then kubefan has no authorities
//! of client certificates, and can't find out what a caller may read. So kubefan judges and
//! forwards no request. Each request gets a 503 that makes the client repeat it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use kubefan_core::api::Status;
use kubefan_core::body::Body;
use parking_lot::Mutex;

use super::answers::answer::Answer;
use super::filters::{Records, WebPageRules};
use super::request::Exchange;
use super::service::{Server, filtered};
use crate::identity::AccessControl;
use crate::net::HttpService;

/// The state that the listeners share while kubefan starts: what it waits for, and then the
/// [`Server`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Startup {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    started: OnceLock<Started>,
}

/// What kubefan has once the API server has answered.
pub(super) struct Started {
    pub(super) server: Server,
    /// Authorizes the callers of metrics and details; `None` to answer all.
    pub(super) admin_access: Option<AccessControl>,
}

/// What kubefan waits for while it starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    /// What is missing, such as `the API server`.
    pub(super) what: &'static str,
    /// Why the wait takes time, for the operator only; may be empty.
    pub(super) details: String,
}

impl Server {
    /// Returns the service for `net`: the complete request path, including filters.
    pub fn into_service(self) -> impl HttpService<Body, Error = Infallible, Future: Send> {
        let (records, web_pages) = (self.inner.records.clone(), self.inner.web_pages);
        let startup = Startup::default();
        startup.finish(self, None);
        startup.into_service(records, web_pages)
    }
}

impl Startup {
    /// Records what kubefan waits for, such as `the API server`. Only the operator may see the
    /// `details`.
    pub fn wait_for(&self, what: &'static str, details: String) {
        *self.inner.waiting.lock() = Waiting { what, details };
    }

    /// Answers all further requests with `server`. `admin_access` authorizes the callers of metrics
    /// and details. Only the first call has an effect.
    pub fn finish(&self, server: Server, admin_access: Option<AccessControl>) {
        self.inner.started.get_or_init(|| Started {
            server,
            admin_access,
        });
    }

    /// Returns the bytes of events that the caches no longer have and that clients' watches still
    /// hold.
    pub fn evicted_bytes(&self) -> u64 {
        let started = self.started();
        started.map_or(0, |started| {
            started.server.inner.caches.informers.evicted_bytes().get()
        })
    }

    pub(super) fn started(&self) -> Option<&Started> {
        self.inner.started.get()
    }

    pub(super) fn waiting(&self) -> Waiting {
        self.inner.waiting.lock().clone()
    }

    /// Returns the service for the listener of clients: the filters, and the server as soon as
    /// there is one.
    pub fn into_service(
        self,
        records: Records,
        web_pages: WebPageRules,
    ) -> impl HttpService<Body, Error = Infallible, Future: Send> {
        filtered(records, web_pages, move |exchange| {
            let startup = self.clone();
            async move {
                match startup.started() {
                    Some(started) => started.server.answer(exchange).await,
                    None => startup.refuse(&exchange),
                }
            }
        })
    }

    /// Returns the answer to a request that arrived too early. It says nothing about the API
    /// server.
    fn refuse(&self, exchange: &Exchange) -> Answer {
        let Waiting { what, .. } = self.waiting();
        let status = Status::unreachable(format!("kubefan is starting: waiting for {what}"));
        exchange.refuse(status)
    }
}
