//! The admin listener: `/livez` (also `/healthz`), `/readyz`, `/metrics`, the admin API below
//! `/admin/v1/`, and a dashboard that shows it in a browser.

mod api;
mod authorization;
mod dashboard;
mod readiness;
mod shared_rendering;
mod why;

use std::convert::Infallible;
use std::sync::Arc;

use api::Api;
pub use api::{EffectiveSetting, SettingOrigin};
use authorization::{METRICS, authorize};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use kubefan_core::api::{Status, WireFormat};
use kubefan_core::body::Body;
use kubefan_core::informer::InformerSet;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::{Registry, Samples};
use shared_rendering::SharedRendering;

use super::answers::rescue;
use super::filters::{WebPageRules, refusal_reason};
use super::startup::{Started, Startup};
use super::why::Why;
use crate::bill::Bill;
use crate::ledger::{Ledger, sample_kept};

/// The answer to a request that needs an authorized caller, if the API server has not answered yet.
const CLOSED: &str = "waiting for the API server, which decides who may read this";

/// The answer to a request of the admin API if `admin.insecureExposeToNetwork` lets everyone read
/// the metrics.
const EXPOSED: &str = "forbidden: this listener is exposed to the network and authenticates no \
                       callers, so it has only metrics and readiness; for the admin API leave out \
                       admin.insecureExposeToNetwork";

/// The answer to a question about a request if the answer would show beyond loopback what only
/// kubefan itself may read.
const WHY_IS_LOCAL: &str = "forbidden: clients are not authenticated, so the answer would show \
                            what exists, by kubefan's own rights; ask on a loopback admin listener";

/// The methods that the listener accepts.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// What the listener serves, as text for people.
const INDEX: &str = "\
/livez                  kubefan runs (also /healthz)
/readyz                 kubefan is ready
/readyz?verbose         each cache, and what kubefan waits for
/metrics                kubefan's metrics
/admin/v1/openapi.json  the admin API: caches, clients, memory and more, as JSON
/                       a dashboard that shows it, if a browser asks
";

/// Answers health probes, metrics scrapes and requests of the admin API. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    startup: Startup,
    registry: Registry,
    scrapes: SharedRendering<(&'static str, Bytes)>,
    api: Api,
    shutdown: Shutdown,
    /// Which requests for metrics and details may be from a web page. If callers are authenticated,
    /// metrics and details are only for those that the API server lets read them.
    web_pages: WebPageRules,
    why: Arc<Why>,
}

impl Admin {
    /// Creates the service for an admin listener. Readiness depends on `startup`, its informers and
    /// `shutdown`. A scrape renders `registry`, with the metrics of each informer added. The admin
    /// API shows also the clients and the memory of `ledger`, and the `bill` if there is one.
    ///
    /// `/metrics`, `/readyz?verbose` and the admin API are answered only if the request is not from
    /// a foreign web page by the rules `web_pages`. If callers are authenticated, they are also
    /// answered only for callers that may get `/metrics` of the API server, and the names of users
    /// only for those that may get their path. So no caller gets them before `startup` is finished.
    /// `/admin/v1/why` needs no right if clients are authenticated: it is answered for its caller.
    /// Without a local name in `web_pages`, and without authenticated callers, the admin API is closed.
    /// The files of the dashboard have no data, and are for everyone.
    pub fn new(
        startup: Startup,
        ledger: Ledger,
        bill: Option<Arc<Bill>>,
        registry: Registry,
        shutdown: Shutdown,
        web_pages: WebPageRules,
    ) -> Self {
        let (scraped, draining) = (startup.clone(), shutdown.clone());
        registry.on_scrape(move |samples| {
            let started = scraped.started();
            let informers = started.map(|started| &started.server.inner.caches.informers);
            let is_serving = !draining.is_draining();
            let is_ready = informers.is_some_and(|all| {
                readiness::ready(all, is_serving, false)
                    .status()
                    .is_success()
            });
            samples.gauge(
                "kubefan_ready",
                "1 if /readyz succeeds, else 0.",
                &[],
                f64::from(u8::from(is_ready)),
            );
            if let Some(informers) = informers {
                sample(informers, samples);
            }
        });
        Self {
            api: Api::new(startup.clone(), ledger, bill, &registry, shutdown.clone()),
            startup,
            registry,
            scrapes: SharedRendering::new(),
            shutdown,
            web_pages,
            why: Arc::default(),
        }
    }

    /// Makes the admin API show `settings` as the effective configuration from now on.
    pub fn show_settings(&self, settings: Vec<EffectiveSetting>) {
        self.api.show_settings(settings);
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
        let path = request.uri().path().to_owned();
        let is_api = api::is_path_of_api(&path);
        if let Some(right) = right_for(&path, is_verbose) {
            let are_clients_authenticated = why::authenticates(&self.startup);
            let is_for_caller = path == why::PATH && are_clients_authenticated;
            let right = (!is_for_caller).then_some(right);
            if let Err(status) = self.permit(&mut request, right, is_read).await {
                return Ok(refuse(&status, is_api));
            }
            if let Some(reason) = closed_because(self.web_pages, &path, are_clients_authenticated) {
                let status = Status::failure(403, "Forbidden", reason);
                return Ok(refuse(&status, is_api));
            }
        }
        if !is_read {
            let status = Status::failure(405, "MethodNotAllowed", "use GET");
            let mut response = refuse(&status, is_api);
            response.headers_mut().insert(header::ALLOW, METHODS);
            return Ok(response);
        }
        Ok(match path.as_str() {
            why::PATH => why::answer(&self.why, &self.startup, why::Asked::of(&request)).await,
            path if is_api => self.api.answer(path).await,
            "/livez" | "/healthz" => rescue::plain_text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.startup.started() {
                Some(started) => {
                    let informers = &started.server.inner.caches.informers;
                    readiness::ready(informers, !self.shutdown.is_draining(), is_verbose)
                }
                None => readiness::starting(&self.startup.waiting(), is_verbose),
            },
            METRICS => self.metrics().await,
            "/" if !dashboard::is_wanted(request.headers()) => {
                rescue::plain_text(StatusCode::OK, INDEX)
            }
            path => dashboard::answer(path).unwrap_or_else(|| {
                let text = format!("not found; there are:\n{INDEX}");
                rescue::plain_text(StatusCode::NOT_FOUND, text)
            }),
        })
    }

    /// Checks that no foreign web page may have caused the request, and that its caller may get the
    /// path `right` of the API server, if there is one, callers are authenticated and the request is
    /// a read.
    ///
    /// # Errors
    /// The Status of the refusal.
    async fn permit<B: Send>(
        &self,
        request: &mut Request<B>,
        right: Option<&'static str>,
        is_read: bool,
    ) -> Result<(), Status> {
        let head = (request.uri(), request.headers());
        if let Some(reason) = refusal_reason(self.web_pages, request.version(), head) {
            let message = format!("forbidden: {reason}");
            return Err(Status::failure(403, "Forbidden", message));
        }
        let Some(right) = right.filter(|_| self.web_pages.are_callers_authenticated && is_read)
        else {
            return Ok(());
        };
        let Some(Started { admin_access, .. }) = self.startup.started() else {
            return Err(Status::failure(503, "ServiceUnavailable", CLOSED));
        };
        match admin_access {
            Some(access) => authorize(access, request, right).await,
            None => Ok(()),
        }
    }

    async fn metrics(&self) -> Response<Body> {
        let render = || {
            let (content_type, text) = self.registry.render();
            (content_type, Bytes::from(text))
        };
        let (content_type, text) = self.scrapes.get(render).await;
        let mut response = rescue::plain_text(StatusCode::OK, text);
        let content_type = HeaderValue::from_static(content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// Returns the path that the caller of a request must be allowed to get at the API server. `None`
/// if the request needs no right. A probe of a load balancer has no credentials, and any `Host` or
/// none.
fn right_for(path: &str, is_verbose: bool) -> Option<&'static str> {
    match path {
        METRICS => Some(METRICS),
        "/readyz" if is_verbose => Some(METRICS),
        path => api::right_for(path),
    }
}

/// Returns why a listener with these rules refuses `path` to every caller; `None` if it does not.
/// A listener beyond loopback without authenticated callers lets everyone read the metrics and
/// details, but not the admin API, which also shows clients and settings. Only a loopback listener
/// explains requests that kubefan answers with its own rights.
fn closed_because(
    rules: WebPageRules,
    path: &str,
    are_clients_authenticated: bool,
) -> Option<&'static str> {
    if rules.has_local_name {
        return None;
    }
    if !rules.are_callers_authenticated && api::is_path_of_api(path) {
        return Some(EXPOSED);
    }
    (path == why::PATH && !are_clients_authenticated).then_some(WHY_IS_LOCAL)
}

/// Returns the answer to a request that is refused: a Status if it is one of the admin API, and
/// text for people otherwise.
fn refuse(status: &Status, is_api: bool) -> Response<Body> {
    if is_api {
        return rescue::respond(status, WireFormat::Json);
    }
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::FORBIDDEN);
    rescue::plain_text(code, format!("{}\n", status.message))
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
    samples.counter(
        "kubefan_upstream_credentials_refused_total",
        "Requests with kubefan's own credentials that the API server refused (401). A read counts \
         if the credentials were refused also after kubefan had read them again.",
        &[],
        informers.refused_credentials() as f64,
    );
    informers.bridge_limits().sample(samples);
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use kubefan_core::shutdown;

    use super::*;
    use crate::ledger::Limits;

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
        let ledger = Ledger::new(Limits::default());
        let (startup, registry) = (Startup::default(), Registry::new());
        Admin::new(startup, ledger, None, registry, shutdown, web_pages)
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
            "/admin/v1/memory",
            "/admin/v1/users",
            "/admin/v1/events",
            "/admin/none",
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
            assert_eq!(status(&admin, "/admin/v1/memory", &local).await, 200);
            assert_eq!(status(&admin, "/admin/v1/caches", &local).await, 503);
            assert_eq!(status(&admin, "/admin/v1/none", &local).await, 404);
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
            for path in ["/metrics", "/admin/v1/memory", "/admin/v1/users"] {
                let status = status(&admin, path, headers).await;
                assert_eq!(status, expected, "{path} {headers:?}");
            }
            // The files of the dashboard have no data.
            for path in ["/", "/dashboard/main.js"] {
                assert_eq!(status(&admin, path, headers).await, 200, "{headers:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_callers_an_exposed_listener_has_metrics_but_no_admin_api() {
        let admin = admin(WebPageRules {
            has_local_name: false,
            are_callers_authenticated: false,
        });
        for (path, expected) in [
            ("/livez", 200),
            ("/readyz", 503),
            ("/readyz?verbose", 503),
            ("/metrics", 200),
            ("/", 200),
            ("/admin", 403),
            ("/admin/v1/memory", 403),
            ("/admin/v1/clients", 403),
            ("/admin/v1/users", 403),
            ("/admin/v1/config", 403),
            ("/admin/v1/bill", 403),
            ("/admin/v1/events", 403),
            ("/admin/v1/openapi.json", 403),
            ("/admin/v1/none", 403),
            ("/admin/v1/why?path=/version", 403),
        ] {
            for host in ["kubefan.example", "localhost"] {
                let status = status(&admin, path, &[("host", host)]).await;
                assert_eq!(status, expected, "{path} {host}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_api_server_has_answered_kubefan_is_not_ready() {
        let (_, metrics) = admin(WebPageRules::default()).registry.render();
        let mut lines = metrics.lines();
        assert!(lines.any(|line| line == "kubefan_ready 0"), "{metrics}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_gets_the_dashboard_and_a_program_the_paths() {
        let admin = admin(WebPageRules::default());
        let browser = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        for (method, headers, content_type) in [
            (Method::GET, &[LOCAL][..], "text/plain; charset=utf-8"),
            (
                Method::GET,
                &[LOCAL, ("accept", "*/*")],
                "text/plain; charset=utf-8",
            ),
            (Method::GET, &[LOCAL, browser], "text/html; charset=utf-8"),
            (Method::HEAD, &[LOCAL, browser], "text/html; charset=utf-8"),
        ] {
            let mut request = Request::builder().method(method).uri("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(()).expect("a request");
            let Ok(answer) = admin.clone().answer(request).await;
            assert_eq!(answer.status(), 200, "{headers:?}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], content_type);
        }
        // The page of a browser that comes through a foreign name gets no data.
        let foreign = [("host", "pages.example:8002"), browser];
        assert_eq!(status(&admin, "/", &foreign).await, 200);
        assert_eq!(status(&admin, "/dashboard/main.js", &foreign).await, 200);
        assert_eq!(status(&admin, "/admin/v1/memory", &foreign).await, 403);
        // What the page itself asks for.
        let own = [LOCAL, ("sec-fetch-site", "same-origin")];
        assert_eq!(status(&admin, "/admin/v1/memory", &own).await, 200);
        for path in ["/dashboard", "/dashboard/", "/dashboard/none.js"] {
            assert_eq!(status(&admin, path, &own).await, 404, "{path}");
        }
    }

    #[test]
    fn only_a_loopback_listener_explains_what_kubefan_itself_may_read() {
        let rules = |has_local_name, are_callers_authenticated| WebPageRules {
            has_local_name,
            are_callers_authenticated,
        };
        let (memory, why) = ("/admin/v1/memory", why::PATH);
        for (rules, path, are_clients_authenticated, expected) in [
            (rules(true, false), why, false, None),
            (rules(true, false), why, true, None),
            (rules(false, true), why, true, None),
            (rules(false, true), why, false, Some(WHY_IS_LOCAL)),
            (rules(false, true), memory, false, None),
            (rules(false, true), METRICS, false, None),
            (rules(false, false), why, true, Some(EXPOSED)),
            (rules(false, false), memory, true, Some(EXPOSED)),
            (rules(false, false), METRICS, false, None),
        ] {
            let reason = closed_because(rules, path, are_clients_authenticated);
            assert_eq!(reason, expected, "{rules:?} {path}");
        }
    }

    #[test]
    fn each_path_needs_its_right() {
        for (path, is_verbose, expected) in [
            ("/", false, None),
            ("/livez", true, None),
            ("/healthz", false, None),
            ("/readyz", false, None),
            ("/readyz", true, Some("/metrics")),
            ("/metrics", false, Some("/metrics")),
            ("/admin", false, Some("/metrics")),
            ("/admin/v1/caches", false, Some("/metrics")),
            ("/admin/v1/events", false, Some("/metrics")),
            ("/admin/v1/openapi.json", false, Some("/metrics")),
            ("/admin/v1/none", false, Some("/metrics")),
            ("/admin/v1/users", false, Some("/admin/v1/users")),
            ("/admin/v1/users/", false, Some("/metrics")),
            ("/dashboard/main.js", false, None),
            ("/administration", false, None),
        ] {
            assert_eq!(right_for(path, is_verbose), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_refused_with_the_methods_that_are_allowed() {
        for path in [
            "/metrics",
            "/livez",
            "/admin/v1/memory",
            "/admin/v1/users",
            "/dashboard/main.js",
        ] {
            let request = Request::post(path).header("host", "localhost").body(());
            let request = request.expect("a request");
            let Ok(answer) = admin(WebPageRules::default()).answer(request).await;
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(answer.headers()[header::ALLOW], "GET, HEAD", "{path}");
        }
    }
}
