//! The admin listener: `/livez` (also `/healthz`), `/readyz`, `/metrics` and `/admin/v1/why`.

mod authorization;
mod scrape;
mod why;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use authorization::authorize;
use http::{Method, Request, Response, StatusCode, header};
use kubefan_core::body::Body;
use kubefan_core::informer::{Informer, InformerSet};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::{Registry, Samples};
use scrape::SharedScrapes;

use super::answers::rescue;
use super::filters::{WebPageRules, refusal_reason};
use super::startup::{Started, Startup, Waiting};
use super::why::Why;
use crate::ledger::sample_kept;

/// The answer to a request for metrics or details that needs an authorized caller, if the API
/// server has not answered yet.
const CLOSED: &str = "waiting for the API server, which decides who may read this\n";

/// What the listener serves, as text for people.
const INDEX: &str = "\
/livez           kubefan runs (also /healthz)
/readyz          kubefan is ready
/readyz?verbose  each cache, and what kubefan waits for
/metrics         kubefan's metrics
";

/// Answers health probes and metrics scrapes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    startup: Startup,
    scrapes: SharedScrapes,
    shutdown: Shutdown,
    /// Which requests for metrics and details may be from a web page. If callers are authenticated,
    /// metrics and details are only for those that the API server lets read them.
    web_pages: WebPageRules,
    why: Arc<Why>,
}

impl Admin {
    /// Creates the service for an admin listener. Readiness depends on `startup`, its informers and
    /// `shutdown`. A scrape renders `registry`, with the metrics of each informer added.
    ///
    /// `/metrics` and `/readyz?verbose` are answered only if the request is not from a foreign web
    /// page by the rules `web_pages`. If callers are authenticated, they are also answered only for
    /// callers that may get `/metrics` of the API server. So no caller gets them before `startup`
    /// is finished. `/admin/v1/why` is answered for its caller, if clients are authenticated, and
    /// otherwise like the metrics.
    pub fn new(
        startup: Startup,
        registry: Registry,
        shutdown: Shutdown,
        web_pages: WebPageRules,
    ) -> Self {
        let scraped = startup.clone();
        registry.on_scrape(move |samples| {
            if let Some(started) = scraped.started() {
                sample(&started.server.inner.caches.informers, samples);
            }
        });
        Self {
            startup,
            scrapes: SharedScrapes::new(registry),
            shutdown,
            web_pages,
            why: Arc::default(),
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// None: the error type is [`Infallible`].
    pub async fn answer<B: Send>(
        self,
        mut request: Request<B>,
    ) -> Result<Response<Body>, Infallible> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_verbose = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("verbose")));
        let path = request.uri().path();
        let is_question = path == why::PATH;
        let shows_details = path == "/metrics" || path == "/readyz" && is_verbose || is_question;
        // A probe of a load balancer has any `Host`, or none.
        let foreign = if shows_details {
            let head = (request.uri(), request.headers());
            refusal_reason(self.web_pages, request.version(), head)
        } else {
            None
        };
        if let Some(reason) = foreign {
            let message = format!("forbidden: {reason}\n");
            return Ok(rescue::plain_text(StatusCode::FORBIDDEN, message));
        }
        if self.web_pages.are_callers_authenticated
            && is_read
            && shows_details
            && !(is_question && why::authenticates(&self.startup))
            && let Err(refused) = self.authorize(&mut request).await
        {
            return Ok(refused);
        }
        Ok(match request.uri().path() {
            _ if !is_read => rescue::plain_text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
            "/livez" | "/healthz" => rescue::plain_text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.startup.started() {
                Some(started) => self.ready(&started.server.inner.caches.informers, is_verbose),
                None => starting(&self.startup.waiting(), is_verbose),
            },
            "/metrics" => self.metrics().await,
            why::PATH => why::answer(&self.why, &self.startup, why::Asked::of(&request)).await,
            "/" => rescue::plain_text(StatusCode::OK, INDEX),
            _ => rescue::plain_text(
                StatusCode::NOT_FOUND,
                format!("not found; there are:\n{INDEX}"),
            ),
        })
    }

    /// Refuses a request for metrics or details, unless its caller may read them.
    async fn authorize<B: Send>(&self, request: &mut Request<B>) -> Result<(), Response<Body>> {
        let Some(Started { admin_access, .. }) = self.startup.started() else {
            return Err(rescue::plain_text(StatusCode::SERVICE_UNAVAILABLE, CLOSED));
        };
        let Some(access) = admin_access else {
            return Ok(());
        };
        authorize(access, request).await.map_err(|refused| {
            let code = StatusCode::from_u16(refused.code).unwrap_or(StatusCode::FORBIDDEN);
            rescue::plain_text(code, refused.message + "\n")
        })
    }

    /// Answers `/readyz`: 503 if [`InformerSet::missing`] names an informer or a drain has begun,
    /// and 200 otherwise. If `is_verbose`, the answer lists all informers.
    fn ready(&self, set: &InformerSet, is_verbose: bool) -> Response<Body> {
        let serving = !self.shutdown.is_draining();
        let missing = set.missing();
        let ready = serving && missing.is_empty();
        let (code, last) = if ready {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        };
        if !is_verbose {
            return rescue::plain_text(code, if ready { "ok\n" } else { last });
        }
        let mark = if serving { "[+]" } else { "[-]" };
        let mut text = format!("{mark}serving\n");
        if !set.is_upstream_responding() {
            // Readiness does not depend on this: other replicas have the same API server.
            let _ = writeln!(text, "[ ]the API server does not respond");
        }
        for (gvr, format, reason) in &missing {
            let _ = writeln!(text, "[-]{gvr} {}: {reason}", format.name());
        }
        for (gvr, format, reason) in set.left_out() {
            let _ = writeln!(text, "[ ]{gvr} {}: {reason}", format.name());
        }
        let is_missing = |informer: &Informer| {
            missing.iter().any(|(gvr, format, _)| {
                *gvr == informer.resource().gvr && *format == informer.format()
            })
        };
        let mut informers = set.all();
        informers.sort_by_key(display_name);
        for informer in &informers {
            // Informers that make kubefan not ready were already listed with `[-]`.
            let is_good = informer.reader().is_ready() && !is_missing(informer);
            let mark = if is_good { "[+]" } else { "[ ]" };
            let _ = writeln!(text, "{mark}{}", state_of(informer));
        }
        text.push_str(last);
        rescue::plain_text(code, text)
    }

    async fn metrics(&self) -> Response<Body> {
        let scrape = self.scrapes.scrape().await;
        let mut response = rescue::plain_text(StatusCode::OK, scrape.text);
        let content_type = http::HeaderValue::from_static(scrape.content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// Adds the metrics of each informer, and the metrics that informers share.
fn sample(informers: &InformerSet, samples: &mut Samples) {
    informers.sample(samples);
    let queues = informers.all();
    let queues = queues.iter().map(|one| one.reader().stats().queue_bytes);
    sample_kept(samples, "queue", queues.sum(), informers.queue_limit());
    let (bytes, limit) = informers.bridge_limits().buffered_bytes();
    sample_kept(samples, "bridge", bytes, limit);
    samples.gauge(
        "kubefan_upstream_responding",
        "1 if the API server responds to pings and handshakes, else 0.",
        &[],
        f64::from(u8::from(informers.is_upstream_responding())),
    );
    informers.bridge_limits().sample(samples);
}

/// Answers `/readyz` before the API server has answered.
fn starting(waiting: &Waiting, is_verbose: bool) -> Response<Body> {
    let Waiting { what, details } = waiting;
    let text = match is_verbose {
        false => format!("waiting for {what}\n"),
        true if details.is_empty() => format!("[-]waiting for {what}\nnot ready\n"),
        true => format!("[-]waiting for {what}: {details}\nnot ready\n"),
    };
    rescue::plain_text(StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Returns what the verbose answer says about an informer.
fn state_of(informer: &Arc<Informer>) -> String {
    let stats = informer.reader().stats();
    let applied = stats.applied.unwrap_or_default();
    let needed = if informer.is_pinned() {
        ""
    } else {
        " (on demand)"
    };
    let age = informer.metrics().watch_liveness.age();
    let alive = age.map_or(String::new(), |age| {
        format!(", watch proven alive {} s ago", age.as_secs())
    });
    format!(
        "{}{needed}: {} objects at resource version {applied}, {} watchers{alive}",
        display_name(informer),
        stats.objects,
        stats.watchers,
    )
}

/// Returns the informer's name in the verbose answer, such as `pods.v1 json` or `pods.v1 json in
/// NAMESPACE, labels app=web`.
fn display_name(informer: &Arc<Informer>) -> String {
    let gvr = &informer.resource().gvr;
    let format = informer.format().name();
    let scope = informer.upstream_scope().to_string();
    format!("{gvr} {format} {scope}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use kubefan_core::shutdown;

    use super::*;

    const LOCAL: (&str, &str) = ("host", "127.0.0.1:8002");

    /// Returns the status of the answer to a GET of `path`.
    async fn status(admin: &Admin, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut request = Request::get(path).body(()).expect("a request");
        let head: &mut HeaderMap = request.headers_mut();
        for (name, value) in headers {
            head.append(*name, value.parse().expect("a header value"));
        }
        let Ok(answer) = admin.clone().answer(request).await;
        answer.status().as_u16()
    }

    fn admin(web_pages: WebPageRules) -> Admin {
        let shutdown = Shutdown::new(shutdown::Config::default());
        Admin::new(Startup::default(), Registry::new(), shutdown, web_pages)
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_web_pages_read_neither_metrics_nor_details() {
        let admin = admin(WebPageRules::default());
        let foreign: [&[(&str, &str)]; 5] = [
            // A page that has bound its own name to the listener's address.
            &[("host", "pages.example:8002")],
            &[("host", "localhost.pages.example")],
            &[],
            &[LOCAL, ("origin", "http://pages.example")],
            &[LOCAL, ("sec-fetch-site", "cross-site")],
        ];
        let details = [
            "/metrics",
            "/metrics?x",
            "/readyz?verbose",
            "/readyz?a&verbose=1",
            "/admin/v1/why?path=/version",
        ];
        for headers in foreign {
            for path in details {
                let status = status(&admin, path, headers).await;
                assert_eq!(status, 403, "{path} {headers:?}");
            }
            // The probes of a load balancer have any name, or none.
            assert_eq!(status(&admin, "/livez", headers).await, 200);
            assert_eq!(status(&admin, "/readyz", headers).await, 503);
        }
        for host in ["127.0.0.1:8002", "localhost", "[::1]:8002"] {
            let local = [("host", host)];
            assert_eq!(status(&admin, "/metrics", &local).await, 200, "{host}");
            assert_eq!(status(&admin, "/readyz?verbose", &local).await, 503);
            assert_eq!(status(&admin, "/admin/v1/why", &local).await, 503);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_loopback_metrics_have_any_name_but_need_a_token() {
        let admin = admin(WebPageRules {
            has_local_name: false,
            are_callers_authenticated: true,
        });
        let host = ("host", "kubefan.example");
        let (token, origin) = (
            ("authorization", "Bearer t"),
            ("origin", "https://pages.example"),
        );
        // Before the API server has answered, no token counts.
        for (headers, expected) in [
            (&[host][..], 503),
            (&[host, token], 503),
            (&[host, token, origin], 503),
            (&[host, origin], 403),
            (&[token], 403),
        ] {
            assert_eq!(
                status(&admin, "/metrics", headers).await,
                expected,
                "{headers:?}"
            );
        }
    }
}
