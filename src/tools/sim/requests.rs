//! Answers the requests of clients: injects request faults, and dispatches to discovery, reads and
//! writes.

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use kubefan_core::api::{Status, WireFormat};
use kubefan_proxy::server;
use kubefan_proxy::server::{Body, RequestInfo, Verb};

use super::faults::RequestFault;
use super::kinds::discovery;
use super::write::request::WriteRequest;
use super::{Simulator, layout, print, refusal};

impl Simulator {
    /// Answers one request to the simulated API server.
    pub fn answer(self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.respond(request).await })
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if self.faults.away_for().is_some() {
            let away = refusal::away();
            return layout::status_response(&away, request.headers(), &query).await;
        }
        let info = RequestInfo::parse(request.method(), path, &query);
        let fault = if info.is_resource_request {
            self.faults.take_request_fault()
        } else {
            None
        };
        let headers = request.headers().clone();
        let answer = match fault.and_then(RequestFault::status) {
            Some(status) => Err(status),
            None if info.is_resource_request => self.resource(&info, &query, request).await,
            None => self.non_resource(&info, &query, &headers).await,
        };
        let is_watch = info.verb == Verb::Watch;
        let mut response = match answer {
            Ok(response) if is_watch => {
                let faults = &self.faults;
                response.map(|body| server::boxed(faults.wrap(body)))
            }
            Ok(response) => response,
            Err(status) => layout::status_response(&status, &headers, &query).await,
        };
        if fault == Some(RequestFault::WrongContentType) {
            let wrong = HeaderValue::from_static("text/html");
            response.headers_mut().insert(header::CONTENT_TYPE, wrong);
        }
        response
    }

    async fn non_resource(
        &self,
        info: &RequestInfo,
        query: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        if matches!(info.path.as_str(), "/healthz" | "/livez" | "/readyz") {
            return Ok(server::plain_text(StatusCode::OK, "ok"));
        }
        if matches!(info.path.rsplit('/').next(), Some("watch" | "proxy")) {
            return Ok(refusal::no_request_info(&info.path));
        }
        let aggregated = accepts_aggregated_discovery(headers);
        let document = match discovery::answer(&info.path, &self.store.kinds(), aggregated) {
            Err(status) if status == Status::path_not_found() => {
                let mut segments = info.path.split('/').filter(|part| !part.is_empty());
                let is_served = match (segments.next(), segments.next()) {
                    (Some("api"), Some(_)) => true,
                    (Some("apis"), Some(group)) => self.has_builtin(group),
                    _ => false,
                };
                return if is_served {
                    Err(status)
                } else {
                    Ok(refusal::page_not_found())
                };
            }
            Err(status) if status == discovery::no_openapi_v2() => {
                return Ok(refusal::plain_text_status(&status));
            }
            document => document?,
        };
        let is_root = matches!(info.path.trim_matches('/'), "api" | "apis");
        let media_type = if aggregated && is_root {
            discovery::AGGREGATED
        } else {
            WireFormat::Json.media_type()
        };
        let answer = server::answer(media_type, server::full(print::line(&document)));
        if layout::is_pretty(headers, query) {
            Ok(layout::indent(answer).await)
        } else {
            Ok(answer)
        }
    }

    async fn resource(
        &self,
        info: &RequestInfo,
        query: &str,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (parts, body) = request.into_parts();
        if !self.has_path(info) {
            return Ok(refusal::page_not_found());
        }
        let is_read = matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
        if is_read && info.subresource != "scale" {
            return self.read(info, query, &parts.method, &parts.headers).await;
        }
        if !accepts_json(&layout::accept_header(&parts.headers)) {
            return Err(refusal::not_acceptable());
        }
        let write = WriteRequest::read(info, query, &parts.headers, body).await?;
        let written = self.write(&write)?;
        let body = server::full(print::line(&written.object));
        let mut response = server::answer(WireFormat::Json.media_type(), body);
        *response.status_mut() = written.code;
        for text in written.warnings {
            let header = format!("299 - {}", serde_json::Value::from(text));
            if let Ok(header) = HeaderValue::try_from(header) {
                response.headers_mut().append(header::WARNING, header);
            }
        }
        Ok(response)
    }

    fn has_builtin(&self, group: &str) -> bool {
        discovery::has_reviews(group) || self.store.has_builtin(group)
    }

    /// Returns false if a real API server has no handler for the path and answers with a plain-text
    /// 404. Such paths are those of resources that are not served, unless their group has built-in
    /// kinds, and the `proxy` paths of custom resources.
    fn has_path(&self, info: &RequestInfo) -> bool {
        let gvr = info.gvr();
        let served_kind = gvr.as_ref().and_then(|gvr| self.store.served_kind(gvr));
        match served_kind {
            Some(served_kind) => !served_kind.kind.is_custom || info.verb != Verb::Proxy,
            None => self.has_builtin(&info.group),
        }
    }
}

/// Returns true if the request accepts aggregated discovery (all groups with their resources).
fn accepts_aggregated_discovery(headers: &HeaderMap) -> bool {
    let accept = layout::accept_header(headers).replace(' ', "");
    accept.split(',').any(|clause| {
        let mut parts = clause.split(';');
        let is_json = parts.next() == Some("application/json");
        let parameters: Vec<_> = parts.collect();
        is_json && parameters.contains(&"as=APIGroupDiscoveryList") && parameters.contains(&"v=v2")
    })
}

/// Returns true if `accept` allows plain JSON. Clauses for Tables and protobuf do not count;
/// clients that ask for these also accept plain JSON.
fn accepts_json(accept: &str) -> bool {
    accept.trim().is_empty()
        || accept.split(',').any(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let is_json = matches!(
                parts.next(),
                Some("application/json" | "application/*" | "*/*")
            );
            is_json && !parts.any(|parameter| parameter.starts_with("as="))
        })
}

/// Returns true for methods that can change something.
pub(super) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}
