//! GET, LIST and WATCH: the answers of the serving code, converted to the form that the client asks
//! for.

mod authoritative;
pub(super) mod forms;
mod tables;

use std::borrow::Cow;
use std::sync::Arc;

use forms::Form;
use http::{HeaderMap, Method, Response};
use kubefan_core::api::{ListOptions, Query, Resource, Status, WireFormat};
use kubefan_core::codec::{Printer, ReadVerb};
use kubefan_proxy::server;
use kubefan_proxy::server::{Body, RequestInfo, Verb};
use tables::Table;

use crate::sim::store::collection::ServedKind;
use crate::sim::{Simulator, kinds, layout, refusal};

impl Simulator {
    /// Answers the `get`, `list` or `watch` that `info` describes.
    pub(crate) async fn read(
        &self,
        info: &RequestInfo,
        query: &str,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Status> {
        let served_kind = self.served_kind(info)?;
        let kind = &served_kind.kind;
        if *method == Method::HEAD && !kind.is_custom {
            return Err(Status::method_not_allowed());
        }
        if let Some(fault) = invalid_name_reason(info) {
            let name = &info.name;
            let message = format!("Name parameter invalid: \"{name}\": may not {fault}");
            return Err(Status::bad_request(message));
        }
        let (verb, accept) = (
            forms::read_verb(info.verb.as_str()),
            layout::accept_header(headers),
        );
        let form = forms::negotiate(&accept, verb, kind)?;
        let table = match form {
            Form::Table => Some(Table::negotiate(&accept, query)?),
            Form::Whole(_) | Form::Metadata(_) => None,
        };
        let query = without_deprecated_path(info, query)?;
        let plain = self.read_objects(&served_kind, form, info, &query).await?;
        let answer = match (form, table) {
            (Form::Table, Some(table)) => {
                let rows = table.row_converter(kind, self.printer(&kind.resource));
                forms::convert_body(plain, verb, rows).await?
            }
            _ => plain,
        };
        if verb != ReadVerb::Watch
            && (form == Form::Whole(true) || layout::is_pretty(headers, &query))
        {
            return Ok(layout::indent(answer).await);
        }
        Ok(answer)
    }

    /// Reads the objects. If a Table is needed, the answer still contains complete objects.
    async fn read_objects(
        &self,
        served_kind: &Arc<ServedKind>,
        form: Form,
        info: &RequestInfo,
        query: &str,
    ) -> Result<Response<Body>, Status> {
        let collection: Arc<dyn server::Collection> = Arc::<ServedKind>::clone(served_kind);
        let answer = authoritative::read(
            (&collection, &served_kind.kind),
            form.representation(),
            info,
            query,
            &self.shutdown,
        );
        let answer = answer.await;
        answer.or_else(|mut status| {
            let gvr = &served_kind.kind.resource.gvr;
            if status.code != 504 {
                return Err(status);
            }
            if info.verb == Verb::Watch {
                let frame = collection.encoder().error(&status);
                let media_type = WireFormat::Json.watch_media_type();
                Ok(server::answer(media_type, server::full(frame)))
            } else {
                // The API server reads Events directly from etcd, and its answer has no retry
                // delay.
                if gvr.group.is_empty()
                    && gvr.resource == "events"
                    && let Some(details) = &mut status.details
                {
                    details.retry_after_seconds = 0;
                }
                Err(status)
            }
        })
    }

    /// Returns the printer for the Table rows of `resource`.
    fn printer(&self, resource: &Resource) -> Printer {
        let gvr = &resource.gvr;
        let custom = || {
            let definition = self.get(&kinds::definitions(), None, &gvr.group_resource());
            Printer::custom(&definition.ok()?, &gvr.version)
        };
        Printer::built_in(&gvr.api_version(), &resource.kind)
            .or_else(custom)
            .unwrap_or_else(Printer::fallback)
    }

    /// Returns the kind to read from. Refuses kinds and subresources that are not served.
    fn served_kind(&self, info: &RequestInfo) -> Result<Arc<ServedKind>, Status> {
        let gvr = info.gvr().ok_or_else(Status::path_not_found)?;
        let served_kind = self
            .store
            .served_kind(&gvr)
            .ok_or_else(Status::path_not_found)?;
        match info.subresource.as_str() {
            "" => {}
            "status" if served_kind.kind.has_status => {}
            "log" => return Err(refusal::not_simulated_path("containers, and so no logs")),
            _ if served_kind.kind.is_custom => return Err(Status::not_found(&gvr, &info.name)),
            _ => return Err(Status::path_not_found()),
        }
        Ok(served_kind)
    }
}

/// Returns the reason why no object can have the name in the path of a GET;
/// `None` if the name is possible.
fn invalid_name_reason(info: &RequestInfo) -> Option<&'static str> {
    match info.name.as_str() {
        "." => Some("be '.'"),
        ".." => Some("be '..'"),
        name if name.contains('/') => Some("contain '/'"),
        name if name.contains('%') => Some("contain '%'"),
        _ => None,
    }
    .filter(|_| info.verb == Verb::Get)
}

/// Returns the query of a request. If the request uses a deprecated `/watch/` path with a name, the
/// query selects that name with a field selector.
fn without_deprecated_path<'a>(info: &RequestInfo, query: &'a str) -> Result<Cow<'a, str>, Status> {
    let name = info.name.as_str();
    if !info.watch_path || name.is_empty() {
        return Ok(query.into());
    }
    let options = ListOptions::parse(query)?;
    let selector = Query::parse(query);
    match selector.first("fieldSelector").unwrap_or_default() {
        "" => Ok(format!("{query}&fieldSelector=metadata.name%3D{name}").into()),
        _ if options.fields.required_name() == Some(name) => Ok(query.into()),
        _ => {
            let message = "fieldSelector metadata.name doesn't match requested name";
            Err(Status::bad_request(message))
        }
    }
}
