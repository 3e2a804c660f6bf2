//! From a request to the store and back.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::api::ListOptions;
use crate::api::Query;
use crate::api::Status;
use crate::api::WireFormat;
use crate::codec::protobuf_to_json;
use crate::server;
use crate::server::Body;
use crate::server::request_info::RequestInfo;

use super::Simulator;
use super::faults::RequestFault;
use super::kinds;
use super::kinds::discovery;
use super::print;
use super::read;
use super::refusal;
use super::store::Target;
use super::store::WriteOptions;
use super::write::patch;
use super::write::rules::Part;
use super::write::subresources;
use super::write::verbs::Preconditions;

/// Longest body of a request, in bytes; the API server's limit.
const BODY_LIMIT: usize = 3 << 20;

/// A write, read as far as its headers go.
struct Write<'a> {
    info: &'a RequestInfo,
    query: Query,
    content_type: String,
    body: Bytes,
}

impl Simulator {
    /// Answers one request.
    pub fn answer(self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.respond(request).await })
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let info = RequestInfo::parse(request.method(), path, &query);
        let fault = match info.is_resource_request {
            true => self.faults.next_request(),
            false => None,
        };
        let headers = request.headers().clone();
        let answer = match fault.and_then(RequestFault::status) {
            Some(status) => Err(status),
            None if info.is_resource_request => self.resource(&info, &query, request).await,
            None => self.non_resource(&info, &query, &headers).await,
        };
        let is_watch = info.verb == "watch";
        let mut response = match answer {
            Ok(response) if is_watch => {
                let faults = &self.faults;
                response.map(|body| server::boxed(faults.around(body)))
            }
            Ok(response) => response,
            Err(status) => read::told(&status, &headers, &query).await,
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
        if info.path.starts_with("/openapi/v3/") && explains(headers) {
            return Ok(refusal::in_words(&discovery::no_schemas()));
        }
        let accept = accept(headers).replace(' ', "");
        let aggregated = accept.split(',').any(|clause| {
            let mut parts = clause.split(';');
            let is_json = parts.next() == Some("application/json");
            let parameters: Vec<_> = parts.collect();
            is_json
                && parameters.contains(&"as=APIGroupDiscoveryList")
                && parameters.contains(&"v=v2")
        });
        let document = match discovery::answer(&info.path, &self.store.kinds(), aggregated) {
            Err(status) if status == Status::path_not_found() => {
                let mut segments = info.path.split('/').filter(|part| !part.is_empty());
                let is_served = match (segments.next(), segments.next()) {
                    (Some("api"), Some(_)) => true,
                    (Some("apis"), Some(group)) => self.has_builtin(group),
                    _ => false,
                };
                return match is_served {
                    true => Err(status),
                    false => Ok(refusal::page_not_found()),
                };
            }
            Err(status) if status == discovery::no_schemas() => {
                return Ok(refusal::in_words(&status));
            }
            document => document?,
        };
        let is_root = matches!(info.path.trim_matches('/'), "api" | "apis");
        let media_type = match aggregated && is_root {
            true => discovery::AGGREGATED,
            false => WireFormat::Json.media_type(),
        };
        let answer = server::answer(media_type, server::full(print::line(&document)));
        match read::is_pretty(headers, query) {
            true => Ok(read::indented(answer).await),
            false => Ok(answer),
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
        let is_read = matches!(info.verb.as_str(), "get" | "list" | "watch");
        if is_read && info.subresource != "scale" {
            return self.read(info, query, &parts.method, &parts.headers).await;
        }
        if !accepts_json(&accept(&parts.headers)) {
            return Err(refusal::not_acceptable());
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let write = Write {
            info,
            query: Query::parse(query),
            content_type: content_type.unwrap_or_default().to_owned(),
            body: collect(body).await?,
        };
        let (code, object) = self.write(&write, query)?;
        let body = server::full(print::line(&object));
        let mut response = server::answer(WireFormat::Json.media_type(), body);
        *response.status_mut() = code;
        Ok(response)
    }

    fn has_builtin(&self, group: &str) -> bool {
        discovery::has_reviews(group) || self.store.has_builtin(group)
    }

    /// False where a real API server has nothing at all to say: in groups that nobody serves, and
    /// for custom resources that nobody defined.
    fn has_path(&self, info: &RequestInfo) -> bool {
        let gvr = info.gvr();
        let served = gvr.as_ref().and_then(|gvr| self.store.served(gvr));
        match served {
            Some(served) => !served.kind.is_custom || info.verb != "proxy",
            None => self.has_builtin(&info.group),
        }
    }

    fn write(&self, write: &Write<'_>, query: &str) -> Result<(StatusCode, Value), Status> {
        let info = write.info;
        if info.verb == "create"
            && (info.group == "authorization.k8s.io" || info.group == "authentication.k8s.io")
        {
            let review = subresources::review(&info.group, &info.resource, write.object()?)?;
            return Ok((StatusCode::CREATED, review));
        }
        let target = write.target()?;
        let mut options = write.options()?;
        let (store, part) = (&self.store, write.part()?);
        let done = |result: Result<Value, Status>| result.map(|object| (StatusCode::OK, object));
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("get", "scale") => done(store.write(|state| state.scale(&target))),
            ("update", "scale") => {
                let scale = write.object()?;
                done(store.write(|state| state.set_scale(&target, &scale, options)))
            }
            ("patch", "scale") => {
                let format = patch::Format::of(&write.content_type)?;
                done(store.write(|state| {
                    let resource = state.kind(&target)?.resource;
                    let scale =
                        patch::apply(format, &write.body, &resource, state.scale(&target)?)?;
                    state.set_scale(&target, &scale, options)
                }))
            }
            ("create", "") if target.name.is_empty() => {
                let object = write.object()?;
                let created = store.write(|state| state.create(&target, object, options));
                created.map(|object| (StatusCode::CREATED, object))
            }
            ("update", _) => {
                let object = write.object()?;
                done(store.write(|state| state.update(&target, object, part, options)))
            }
            ("patch", _) => {
                let format = patch::Format::of(&write.content_type)?;
                done(store.write(|state| {
                    let resource = state.kind(&target)?.resource;
                    let object =
                        patch::apply(format, &write.body, &resource, state.current(&target)?)?;
                    state.update(&target, object, part, options)
                }))
            }
            ("delete", "") => {
                let preconditions = write.delete_options(&mut options)?;
                done(store.write(|state| state.delete(&target, &preconditions, options)))
            }
            ("deletecollection", "") if target.gvr == kinds::namespaces() => {
                Err(Status::method_not_allowed())
            }
            ("deletecollection", "") => {
                write.delete_options(&mut options)?;
                let served = store
                    .served(&target.gvr)
                    .ok_or_else(Status::path_not_found)?;
                let namespace = target.namespace.as_deref();
                let selection =
                    ListOptions::parse(query)?.selection(namespace, None, &served.kind.fields)?;
                done(store.write(|state| state.delete_collection(&target, &selection, options)))
            }
            ("create", _) => Err(refusal::no_such_thing("such subresource")),
            _ => Err(match store.served(&target.gvr) {
                Some(served) if served.kind.is_custom => refusal::no_verb(&target.gvr),
                _ => Status::method_not_allowed(),
            }),
        }
    }
}

impl Write<'_> {
    fn target(&self) -> Result<Target, Status> {
        let info = self.info;
        let gvr = info.gvr().ok_or_else(Status::path_not_found)?;
        let is_namespace = gvr == kinds::namespaces();
        let namespace = Some(info.namespace.clone());
        Ok(Target {
            gvr,
            namespace: namespace.filter(|name| !name.is_empty() && !is_namespace),
            name: info.name.clone(),
        })
    }

    fn part(&self) -> Result<Part, Status> {
        match self.info.subresource.as_str() {
            "" | "scale" => Ok(Part::Main),
            "status" => Ok(Part::Status),
            _ => Err(refusal::no_such_thing("such subresource")),
        }
    }

    fn options(&self) -> Result<WriteOptions, Status> {
        let dry_run = match self.query.first("dryRun") {
            None | Some("") => false,
            Some("All") => true,
            Some(other) => {
                let message =
                    format!("dryRun: Unsupported value: \"{other}\": supported values: \"All\"");
                return Err(Status::failure(422, "Invalid", message));
            }
        };
        Ok(WriteOptions {
            dry_run,
            keep_status: false,
        })
    }

    /// What the body of a DELETE says.
    fn delete_options(&self, options: &mut WriteOptions) -> Result<Preconditions, Status> {
        if self.body.is_empty() {
            return Ok(Preconditions::default());
        }
        let body = self.object()?;
        let dry_run = body["dryRun"].as_array();
        options.dry_run |= dry_run.is_some_and(|all| all.iter().any(|one| one == "All"));
        let text = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
        Ok(Preconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        })
    }

    /// The body as an object.
    fn object(&self) -> Result<Value, Status> {
        let media_type = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let object: Value = match media_type {
            "" | "application/json" => serde_json::from_slice(&self.body)
                .map_err(|error| Status::bad_request(error.to_string()))?,
            "application/yaml" => {
                let text = std::str::from_utf8(&self.body);
                let text = text.map_err(|error| Status::bad_request(error.to_string()))?;
                serde_saphyr::from_str(text)
                    .map_err(|error| Status::bad_request(error.to_string()))?
            }
            "application/vnd.kubernetes.protobuf" => protobuf_to_json(&self.body)
                .map_err(|error| Status::bad_request(error.to_string()))?,
            other => return Err(refusal::not_simulated(&format!("bodies of type {other:?}"))),
        };
        match object.is_object() {
            true => Ok(object),
            false => Err(Status::bad_request("the body is no object")),
        }
    }
}

async fn collect(mut body: Body) -> Result<Bytes, Status> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            if collected.len() + data.len() > BODY_LIMIT {
                return Err(refusal::too_large(BODY_LIMIT));
            }
            collected.extend_from_slice(&data);
        }
    }
    Ok(collected.into())
}

/// The `Accept` header; empty when there is none.
pub(super) fn accept(headers: &HeaderMap) -> String {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    accept.unwrap_or_default().to_owned()
}

/// True for `kubectl explain`, which asks for the documents that `kubectl create` asks for too, and
/// fails in words of its own when there are no schemas in them.
fn explains(headers: &HeaderMap) -> bool {
    let command = headers.get("kubectl-command");
    command.is_some_and(|command| command.as_bytes().ends_with(b" explain"))
}

/// True when plain JSON is among what is accepted: Tables and protobuf are left out, as clients
/// that ask for them name JSON too.
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

/// True for requests that could change something.
pub(super) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}
