//! The admin API: what kubefan has and does, as JSON, for programs and for people. GET only.
//!
//! ```text
//! module             what it does
//! page               what a page of the API is: its name, its schema, how it is read
//! pages/             the pages, a type for each; their fields are the contract
//! sources            the parts of kubefan that the pages read
//! effective_setting  a setting with its origin, which the program passes
//! events             a stream of snapshots of several pages, one per second
//! openapi            the OpenAPI document, made from the types of the pages
//! ```
//!
//! A new page is a type in `pages/` that implements [`Page`](page::Page), and a line in
//! [`endpoints`]. What it reads is a field of [`Sources`]. Within `v1`, fields may be added, and none
//! is removed or changes its meaning. Every list has an upper limit.

mod effective_setting;
mod events;
mod openapi;
mod page;
mod pages;
mod sources;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
pub use effective_setting::{EffectiveSetting, SettingOrigin};
use events::Events;
use http::{HeaderValue, Response, header};
use kubefan_core::api::{Status, WireFormat};
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use openapi::NAME as OPENAPI;
use page::{Endpoint, PREFIX};
use pages::snapshot::{NAME as EVENTS, Snapshot};
use prometheus::IntCounter;
use sources::Sources;

use super::authorization::METRICS;
use super::shared_rendering::SharedRendering;
use super::why::NAME as WHY;
use crate::bill::Bill;
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::server::answers::rescue;
use crate::server::startup::Startup;

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

static OPENAPI_DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi_document().into());

/// A page as it was last rendered, or why it can't be shown.
type Rendered = Result<Bytes, Status>;

/// The admin API. Cheap to clone.
#[derive(Clone)]
pub(super) struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    sources: Arc<Sources>,
    pages: Vec<(Endpoint, SharedRendering<Rendered>)>,
    events: Arc<Events>,
    refused_streams: IntCounter,
    shutdown: Shutdown,
}

/// Returns the pages of the API.
fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::of::<pages::caches::Caches>(),
        Endpoint::of::<pages::clients::Clients>(),
        Endpoint::of::<pages::users::Users>(),
        Endpoint::of::<pages::bill::Bill>(),
        Endpoint::of::<pages::bill::AllAdvice>(),
        Endpoint::of::<pages::freshness::Freshness>(),
        Endpoint::of::<pages::memory::Memory>(),
        Endpoint::of::<pages::relists::Relists>(),
        Endpoint::of::<pages::settings::Settings>(),
    ]
}

/// Returns the OpenAPI document.
fn openapi_document() -> String {
    openapi::document(&endpoints(), &Endpoint::of::<Snapshot>())
}

/// Returns true if `path` belongs to the API, whether or not it exists.
pub(super) fn is_path_of_api(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

/// Returns the path that the caller of a request for `path` must be allowed to get at the API
/// server, or `None` if `path` is none of the API.
pub(super) fn right_for(path: &str) -> Option<&'static str> {
    match path.strip_prefix(PREFIX) {
        Some(pages::users::NAME) => Some(pages::users::RIGHT),
        _ => is_path_of_api(path).then_some(METRICS),
    }
}

// === impl Api ===

impl Api {
    pub(super) fn new(
        startup: Startup,
        ledger: Ledger,
        bill: Option<Arc<Bill>>,
        registry: &Registry,
        shutdown: Shutdown,
    ) -> Self {
        let pages = endpoints().into_iter();
        let inner = Inner {
            sources: Arc::new(Sources::new(startup, ledger, bill)),
            pages: pages.map(|page| (page, SharedRendering::new())).collect(),
            events: Arc::default(),
            refused_streams: registry.counter(
                "kubefan_admin_streams_rejected_total",
                "Streams of the admin API that got 429 because too many were open.",
            ),
            shutdown,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Shows `settings` as the effective configuration from now on.
    pub(super) fn show_settings(&self, settings: Vec<EffectiveSetting>) {
        self.inner.sources.show_settings(settings);
    }

    /// Answers a GET of `path` by a permitted caller.
    pub(super) async fn answer(&self, path: &str) -> Response<Body> {
        let Inner { sources, pages, .. } = &*self.inner;
        let name = path.strip_prefix(PREFIX).unwrap_or_default();
        if name == OPENAPI {
            return json(OPENAPI_DOCUMENT.clone());
        }
        if name == EVENTS {
            return self.events();
        }
        let Some((page, rendering)) = pages.iter().find(|(page, _)| page.name == name) else {
            return refuse(&not_found());
        };
        match rendering.get(|| (page.render)(sources)).await {
            Ok(text) => json(text),
            Err(status) => refuse(&status),
        }
    }

    /// Opens a stream of snapshots.
    fn events(&self) -> Response<Body> {
        let Inner {
            sources,
            events,
            refused_streams,
            shutdown,
            ..
        } = &*self.inner;
        if let Err(status) = sources.started() {
            return refuse(&status);
        }
        let sources = Arc::clone(sources);
        let snapshot = Endpoint::of::<Snapshot>();
        let render = move || (snapshot.render)(&sources).ok();
        match events.open(render, shutdown) {
            Some(stream) => rescue::answer("text/event-stream", stream),
            None => {
                refused_streams.inc();
                refuse(&Limit::AdminStreams.status())
            }
        }
    }
}

/// Returns the answer with the JSON `text`.
fn json(text: Bytes) -> Response<Body> {
    let mut response = rescue::answer(WireFormat::Json.media_type(), body::full(text));
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

fn refuse(status: &Status) -> Response<Body> {
    rescue::respond(status, WireFormat::Json)
}

/// Returns the Status of a path that does not exist. It names those that do.
fn not_found() -> Status {
    let names = endpoints().into_iter().map(|page| page.name);
    let names: Vec<_> = names.chain([EVENTS, OPENAPI, WHY]).collect();
    let message = format!("not found; below {PREFIX} there are: {}", names.join(", "));
    Status::failure(404, "NotFound", message)
}

#[cfg(test)]
mod tests;
