//! The second listener: /livez, /readyz and /metrics.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header;

use crate::body::Body;
use crate::informer::Informer;
use crate::informer::InformerSet;
use crate::shutdown::Shutdown;
use crate::telemetry::Registry;
use crate::telemetry::Samples;

use super::rescue;

/// Answers probes and scrapes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    informers: InformerSet,
    registry: Registry,
    shutdown: Shutdown,
}

impl Admin {
    /// Probes look at `informers` and `shutdown`; scrapes render `registry`, to which the numbers
    /// of each informer are added.
    pub fn new(informers: InformerSet, registry: Registry, shutdown: Shutdown) -> Self {
        let scraped = informers.clone();
        registry.on_scrape(move |samples| {
            for informer in scraped.all() {
                sample(&informer, samples);
            }
        });
        Self {
            informers,
            registry,
            shutdown,
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// Never.
    pub async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, Infallible> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_verbose = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("verbose")));
        Ok(match request.uri().path() {
            _ if !is_read => rescue::plain_text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
            "/livez" | "/healthz" => rescue::plain_text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready(is_verbose),
            "/metrics" => self.metrics(),
            _ => rescue::plain_text(
                StatusCode::NOT_FOUND,
                "here are /livez, /readyz (also ?verbose) and /metrics\n",
            ),
        })
    }

    /// Ready once nothing required is missing, until a drain begins.
    fn ready(&self, is_verbose: bool) -> Response<Body> {
        let mut informers = self.informers.all();
        informers.sort_by_key(name);
        let serving = !self.shutdown.is_draining();
        let missing = self.informers.missing();
        let ready = serving && missing.is_empty();
        let code = match ready {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        if !is_verbose {
            return rescue::plain_text(code, if ready { "ok\n" } else { "not ready\n" });
        }
        let mut text = String::new();
        let mark = |good: bool| if good { "[+]" } else { "[-]" };
        let _ = writeln!(text, "{}serving", mark(serving));
        for (gvr, format, reason) in &missing {
            let _ = writeln!(text, "[-]{gvr} {}: {reason}", format.name());
        }
        for informer in &informers {
            let stats = informer.reader().stats();
            let is_ready = informer.reader().is_ready();
            let applied = stats.applied.unwrap_or_default();
            let needed = if informer.is_pinned() {
                ""
            } else {
                " (on demand)"
            };
            let _ = writeln!(
                text,
                "{}{}{needed}: {} objects at resource version {applied}, {} watchers",
                // What is missing was told above.
                if is_ready { "[+]" } else { "[ ]" },
                name(informer),
                stats.objects,
                stats.watchers,
            );
        }
        let _ = writeln!(text, "{}", if ready { "ready" } else { "not ready" });
        rescue::plain_text(code, text)
    }

    fn metrics(&self) -> Response<Body> {
        let (content_type, text) = self.registry.render();
        let mut response = rescue::plain_text(StatusCode::OK, text);
        let content_type = http::HeaderValue::from_static(content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// `pods.v1 json`, with the namespace where there is one.
fn name(informer: &Arc<Informer>) -> String {
    let gvr = &informer.resource().gvr;
    let format = informer.format().name();
    match informer.namespace() {
        None => format!("{gvr} {format}"),
        Some(namespace) => format!("{gvr} {format} in {namespace}"),
    }
}

fn sample(informer: &Informer, samples: &mut Samples) {
    let stats = informer.reader().stats();
    let gvr = &informer.resource().gvr;
    let labels = [
        ("group", gvr.group.as_str()),
        ("version", gvr.version.as_str()),
        ("resource", gvr.resource.as_str()),
        ("format", informer.format().name()),
        ("namespace", informer.namespace().unwrap_or("")),
    ];
    let gauges = [
        (
            "kubefan_cache_objects",
            "Objects in the cache.",
            stats.objects as f64,
        ),
        (
            "kubefan_cache_bytes",
            "Bytes of the cached objects.",
            stats.bytes as f64,
        ),
        (
            "kubefan_cache_resource_version",
            "Resource version up to which the cache is complete.",
            stats.applied.unwrap_or_default().0 as f64,
        ),
        (
            "kubefan_event_log_events",
            "Events in the log.",
            stats.log_events as f64,
        ),
        (
            "kubefan_event_log_bytes",
            "Bytes of the log.",
            stats.log_bytes as f64,
        ),
        (
            "kubefan_watchers",
            "Watches fed by the cache.",
            stats.watchers as f64,
        ),
        (
            "kubefan_informer_ready",
            "1 once the first list was complete.",
            f64::from(u8::from(informer.reader().is_ready())),
        ),
    ];
    for (name, help, value) in gauges {
        samples.gauge(name, help, &labels, value);
    }
    let counters = [
        (
            "kubefan_events_total",
            "Changes received from the API server.",
            stats.events,
        ),
        (
            "kubefan_events_sent_total",
            "Events given to clients, initial ones included.",
            informer.events_sent(),
        ),
        (
            "kubefan_relists_total",
            "Lists that replaced the cache's content.",
            stats.relists,
        ),
        (
            "kubefan_epochs_total",
            "Times that all watches had to be ended, as the change could not be told as events.",
            stats.epochs,
        ),
    ];
    for (name, help, value) in counters {
        samples.counter(name, help, &labels, value as f64);
    }
    informer.metrics().sample(&labels, samples);
    informer.freshness_metrics().sample(&labels, samples);
}
