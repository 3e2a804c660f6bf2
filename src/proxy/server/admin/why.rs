//! `/admin/v1/why`: which way a request would take, as JSON.

use http::{HeaderMap, Request, Response};
use kubefan_core::api::{Status, WireFormat};
use kubefan_core::body;
use kubefan_core::body::Body;

use crate::net::ClientHandle;
use crate::server::answers::rescue;
use crate::server::startup::Startup;
use crate::server::why::Why;

/// The last part of the path of the endpoint.
pub(super) const NAME: &str = "why";
/// The path of the endpoint.
pub(super) const PATH: &str = "/admin/v1/why";

/// A question: the headers and the client of the request that asks, and its query.
pub(super) struct Asked {
    headers: HeaderMap,
    client: Option<ClientHandle>,
    query: String,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        Self {
            headers: request.headers().clone(),
            client: request.extensions().get::<ClientHandle>().cloned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
        }
    }
}

/// Returns true if a question is answered for its caller, as for the requests of this caller.
/// Otherwise kubefan's own rights count, and only a loopback listener answers.
pub(super) fn authenticates(startup: &Startup) -> bool {
    let started = startup.started();
    started.is_some_and(|started| started.server.inner.caches.access.authenticates())
}

/// Answers a question.
pub(super) async fn answer(why: &Why, startup: &Startup, asked: Asked) -> Response<Body> {
    let explanation = match (startup.started(), asked.client) {
        (Some(started), Some(client)) => {
            let own = (asked.headers, client);
            why.answer(&started.server, own, &asked.query).await
        }
        (Some(_), None) => Err(Status::internal_error("the client is not known")),
        (None, _) => {
            let what = startup.waiting().what;
            Err(Status::unreachable(format!(
                "kubefan is starting: waiting for {what}"
            )))
        }
    };
    let text = explanation.and_then(|explanation| {
        serde_json::to_vec(&explanation).map_err(|error| Status::internal_error(error.to_string()))
    });
    match text {
        Ok(text) => rescue::answer(WireFormat::Json.media_type(), body::full(text)),
        Err(status) => rescue::respond(&status, WireFormat::Json),
    }
}
