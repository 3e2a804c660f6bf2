//! The simulator's admin listener: probes, metrics, and fault injection.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use kubefan_core::api::Query;
use kubefan_core::telemetry::Registry;
use kubefan_proxy::server::{Body, plain_text};

use super::Simulator;
use super::faults::{RequestFault, WatchFault};
use super::requests::is_write;

/// The help text for the admin paths.
const HELP: &str = "\
GET  /livez /readyz /metrics
POST /compact                   drop all history: older watches and lists get 410
POST /faults/away               cut the API server off for ?seconds=10: every watch breaks, requests get 503
POST /faults/drop-watches       break the connection of every open watch
POST /faults/gone               end every open watch with 410 Expired
POST /faults/half-frame         send half of the next frame of every open watch, then break it
POST /faults/stall              send half of the next frame, then nothing; the connection stays
POST /faults/silence            send nothing more on any open watch; the connection stays
POST /faults/slow               delay each frame of a watch by ?milliseconds=1000 (0 ends this)
POST /faults/too-many-requests  answer the next ?count=1 requests with 429 and ?retryAfter=1
POST /faults/server-error       answer the next ?count=1 requests with 500
POST /faults/wrong-content-type send the next ?count=1 answers as text/html
POST /faults/revision-back      halve the resource version, as after restoring a backup
";

/// Answers probes, scrapes and requests to inject faults. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    simulator: Simulator,
    registry: Registry,
}

impl Admin {
    /// Creates the admin service. It renders the metrics of `registry`, and injects faults into
    /// `simulator`.
    pub fn new(simulator: Simulator, registry: Registry) -> Self {
        Self {
            simulator,
            registry,
        }
    }

    /// Answers one request to the admin listener.
    ///
    /// # Errors
    ///
    /// None; the error type is [`Infallible`].
    pub async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, Infallible> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let path = request.uri().path();
        Ok(match (is_write(request.method()), path) {
            // A foreign web page can send a POST, but its browser adds an Origin header.
            (true, _) if request.headers().contains_key(header::ORIGIN) => {
                plain_text(StatusCode::FORBIDDEN, "web pages must not inject faults\n")
            }
            (true, path) => self.change(path, &query),
            (false, "/livez" | "/readyz" | "/healthz") => plain_text(StatusCode::OK, "ok\n"),
            (false, "/metrics") => {
                let (content_type, text) = self.registry.render();
                let mut response = plain_text(StatusCode::OK, text);
                let content_type = http::HeaderValue::from_static(content_type);
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, content_type);
                response
            }
            (false, "/") => plain_text(StatusCode::OK, HELP),
            (false, _) => plain_text(StatusCode::NOT_FOUND, HELP),
        })
    }

    fn change(&self, path: &str, query: &Query) -> Response<Body> {
        let faults = self.simulator.faults();
        let number = |name: &str, default: u32| match query.first(name) {
            None | Some("") => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{name}: {text:?} is not a number\n")),
        };
        let next = |fault: RequestFault| {
            number("count", 1).map(|count| faults.fail_requests(fault, count))
        };
        let watches = |fault| {
            faults.fail_watches(fault);
            Ok(())
        };
        let done: Result<(), String> = match path {
            "/compact" => {
                self.simulator.compact();
                Ok(())
            }
            "/faults/away" => number("seconds", 10)
                .map(|seconds| faults.go_away(Duration::from_secs(seconds.into()))),
            "/faults/drop-watches" => watches(WatchFault::Drop),
            "/faults/gone" => watches(WatchFault::Gone),
            "/faults/half-frame" => watches(WatchFault::HalfFrame),
            "/faults/stall" => watches(WatchFault::Stall),
            "/faults/silence" => watches(WatchFault::Silence),
            "/faults/slow" => number("milliseconds", 1000).map(|milliseconds| {
                faults.slow_down(Duration::from_millis(milliseconds.into()));
            }),
            "/faults/too-many-requests" => number("retryAfter", 1)
                .and_then(|seconds| next(RequestFault::TooManyRequests(seconds))),
            "/faults/server-error" => next(RequestFault::ServerError),
            "/faults/wrong-content-type" => next(RequestFault::WrongContentType),
            "/faults/revision-back" => {
                self.simulator.restore_backup();
                Ok(())
            }
            _ => return plain_text(StatusCode::NOT_FOUND, HELP),
        };
        match done {
            Ok(()) => plain_text(StatusCode::OK, "done\n"),
            Err(fault) => plain_text(StatusCode::BAD_REQUEST, fault),
        }
    }
}
