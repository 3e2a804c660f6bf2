//! Executes writing requests on the store.

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use kubefan_core::api::{ListOptions, Query, Status};
use kubefan_core::codec::protobuf_to_json;
use kubefan_proxy::server::{Body, RequestInfo, Verb};
use serde_json::Value;

use super::rules::ObjectPart;
use super::unknown_fields::FieldValidation;
use super::verbs::Preconditions;
use super::{patch, subresources, unknown_fields};
use crate::sim::store::{Store, WriteOptions, WriteTarget};
use crate::sim::{Simulator, kinds, refusal};

/// The maximum size of a request body in bytes, as in the API server.
const BODY_LIMIT: usize = 3 << 20;

/// A writing request: its headers are parsed, its body is collected but not parsed.
pub(crate) struct WriteRequest<'a> {
    info: &'a RequestInfo,
    query: Query,
    query_text: &'a str,
    content_type: String,
    body: Bytes,
}

/// The answer to a write.
pub(crate) struct Written {
    pub(crate) code: StatusCode,
    pub(crate) object: Value,
    /// The texts of the answer's `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// A write to objects: what its request asks for, and the warnings so far.
struct Change<'a> {
    store: &'a Store,
    request: &'a WriteRequest<'a>,
    target: WriteTarget,
    options: WriteOptions,
    warnings: Vec<String>,
}

impl Simulator {
    /// Executes `request`.
    ///
    /// # Errors
    ///
    /// The Status that the API server would refuse the request with.
    pub(crate) fn write(&self, request: &WriteRequest<'_>) -> Result<Written, Status> {
        let info = request.info;
        let is_create = info.verb == Verb::Create;
        let code = if is_create {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        if is_create
            && (info.group == "authorization.k8s.io" || info.group == "authentication.k8s.io")
        {
            return Ok(Written {
                code,
                object: subresources::review(&info.group, &info.resource, request.object()?)?,
                warnings: Vec::new(),
            });
        }
        let mut change = Change {
            store: &self.store,
            request,
            target: request.target()?,
            options: request.options()?,
            warnings: Vec::new(),
        };
        Ok(Written {
            code,
            object: change.execute()?,
            warnings: change.warnings,
        })
    }
}

impl Change<'_> {
    fn execute(&mut self) -> Result<Value, Status> {
        let (store, info, options) = (self.store, self.request.info, self.options);
        let part = self.request.part()?;
        match (info.verb.as_str(), info.subresource.as_str()) {
            ("create", "") if self.target.name.is_empty() => {
                let object = self.known_object()?;
                store.write(|state| state.create(&self.target, object, options))
            }
            ("create", _) => Err(refusal::not_simulated_path("such subresource")),
            ("get", "scale") => store.write(|state| state.scale(&self.target)),
            ("update", "scale") => {
                let scale = self.request.object()?;
                store.write(|state| state.set_scale(&self.target, &scale, options))
            }
            ("patch", "scale") => self.patch_scale(),
            ("update", _) => {
                let object = self.known_object()?;
                store.write(|state| state.update(&self.target, object, part, options))
            }
            ("patch", _) => self.patch(part),
            ("delete", "") => {
                let (preconditions, options) = self.request.delete_options(options)?;
                store.write(|state| state.delete(&self.target, &preconditions, options))
            }
            ("deletecollection", "") => self.delete_collection(),
            _ => Err(self.no_such_verb()),
        }
    }

    /// Returns the object in the body of the request, without fields that its kind does not have.
    fn known_object(&mut self) -> Result<Value, Status> {
        let request = self.request;
        let mut object = request.object()?;
        let validation = FieldValidation::of(&request.query, request.info.verb.as_str())?;
        if let Some(served) = self.store.served_kind(&self.target.gvr) {
            let removed = kinds::remove_unknown_fields(&served.kind, &mut object);
            let refuse = |error: &str| unknown_fields::undecodable(&served.kind, error);
            self.warnings = validation.judge(&removed, refuse)?;
        }
        Ok(object)
    }

    fn patch_scale(&self) -> Result<Value, Status> {
        let (store, request, target) = (self.store, self.request, &self.target);
        let format = patch::PatchFormat::of(&request.content_type)?;
        store.write(|state| {
            let resource = state.kind(target)?.resource;
            let scale = patch::apply(format, &request.body, &resource, state.scale(target)?)?;
            state.set_scale(target, &scale, self.options)
        })
    }

    fn patch(&mut self, part: ObjectPart) -> Result<Value, Status> {
        let (store, request, target) = (self.store, self.request, &self.target);
        let format = patch::PatchFormat::of(&request.content_type)?;
        let validation = FieldValidation::of(&request.query, request.info.verb.as_str())?;
        store.write(|state| {
            let kind = state.kind(target)?;
            let current = state.current(target)?;
            let mut object = patch::apply(format, &request.body, &kind.resource, current)?;
            let patched = object.to_string();
            let removed = kinds::remove_unknown_fields(&kind, &mut object);
            let refuse = |error: &str| unknown_fields::unpatchable(&patched, error);
            self.warnings = validation.judge(&removed, refuse)?;
            state.update(target, object, part, self.options)
        })
    }

    fn delete_collection(&self) -> Result<Value, Status> {
        let (store, target) = (self.store, &self.target);
        if target.gvr == kinds::namespaces() {
            return Err(Status::method_not_allowed());
        }
        let (_, options) = self.request.delete_options(self.options)?;
        let served_kind = store.served_kind(&target.gvr);
        let served_kind = served_kind.ok_or_else(Status::path_not_found)?;
        let namespace = target.namespace.as_deref();
        let selection = ListOptions::parse(self.request.query_text)?;
        let selection = selection.selection(namespace, &served_kind.kind.fields)?;
        store.write(|state| state.delete_collection(target, &selection, options))
    }

    fn no_such_verb(&self) -> Status {
        match self.store.served_kind(&self.target.gvr) {
            // The API server's message has no verb.
            Some(served_kind) if served_kind.kind.is_custom => {
                Status::verb_not_supported(&self.target.gvr, "")
            }
            _ => Status::method_not_allowed(),
        }
    }
}

impl<'a> WriteRequest<'a> {
    /// Reads the request's headers and its body.
    ///
    /// # Errors
    ///
    /// 413 if the body is too long, 400 if it cannot be read completely.
    pub(crate) async fn read(
        info: &'a RequestInfo,
        query_text: &'a str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, Status> {
        let content_type = headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        Ok(Self {
            info,
            query: Query::parse(query_text),
            query_text,
            content_type: content_type.unwrap_or_default().to_owned(),
            body: collect(body).await?,
        })
    }

    fn target(&self) -> Result<WriteTarget, Status> {
        let info = self.info;
        let gvr = info.gvr().ok_or_else(Status::path_not_found)?;
        let is_namespace = gvr == kinds::namespaces();
        let namespace = Some(info.namespace.clone());
        Ok(WriteTarget {
            gvr,
            namespace: namespace.filter(|name| !name.is_empty() && !is_namespace),
            name: info.name.clone(),
        })
    }

    fn part(&self) -> Result<ObjectPart, Status> {
        match self.info.subresource.as_str() {
            "" | "scale" => Ok(ObjectPart::Main),
            "status" => Ok(ObjectPart::Status),
            _ => Err(refusal::not_simulated_path("such subresource")),
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

    /// Returns the preconditions and options in the body of a DELETE, combined
    /// with `options` from the query.
    fn delete_options(
        &self,
        mut options: WriteOptions,
    ) -> Result<(Preconditions, WriteOptions), Status> {
        if self.body.is_empty() {
            return Ok((Preconditions::default(), options));
        }
        let body = self.object()?;
        let dry_run = body["dryRun"].as_array();
        options.dry_run |= dry_run.is_some_and(|all| all.iter().any(|one| one == "All"));
        let text = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
        let preconditions = Preconditions {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        };
        Ok((preconditions, options))
    }

    /// Parses the body (JSON, YAML or protobuf) as an object.
    fn object(&self) -> Result<Value, Status> {
        let media_type = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let object: Value = match media_type {
            "" | "application/json" => serde_json::from_slice(&self.body).map_err(unreadable)?,
            "application/yaml" => {
                let text = std::str::from_utf8(&self.body).map_err(unreadable)?;
                serde_saphyr::from_str(text).map_err(unreadable)?
            }
            "application/vnd.kubernetes.protobuf" => {
                protobuf_to_json(&self.body).map_err(unreadable)?
            }
            other => return Err(refusal::not_simulated(&format!("bodies of type {other:?}"))),
        };
        if object.is_object() {
            Ok(object)
        } else {
            Err(Status::bad_request("the body is not an object"))
        }
    }
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::bad_request(error.to_string())
}

async fn collect(mut body: Body) -> Result<Bytes, Status> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(unreadable)?;
        if let Ok(data) = frame.into_data() {
            if collected.len() + data.len() > BODY_LIMIT {
                return Err(refusal::too_large(BODY_LIMIT));
            }
            collected.extend_from_slice(&data);
        }
    }
    Ok(collected.into())
}
