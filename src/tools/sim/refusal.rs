//! The answers to refused requests, with the API server's wording.

use http::{HeaderValue, Response, StatusCode, header};
use kubefan_core::api::{GroupVersionResource, Resource, Status, StatusCause, StatusDetails};
use kubefan_proxy::server;
use kubefan_proxy::server::Body;

fn details(gvr: &GroupVersionResource, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: gvr.group.clone(),
        kind: gvr.resource.clone(),
        ..StatusDetails::default()
    }
}

/// Creates the 409 for a new object with the name of an existing one.
pub(super) fn already_exists(gvr: &GroupVersionResource, name: &str) -> Status {
    let message = format!("{} \"{name}\" already exists", gvr.group_resource());
    Status::failure(409, "AlreadyExists", message).with_details(details(gvr, name))
}

/// Creates the 409 for a request with a resource version that is not the object's current one.
pub(super) fn conflict(gvr: &GroupVersionResource, name: &str) -> Status {
    let why = "the object has been modified; please apply your changes to the latest version and \
               try again";
    conflict_because(gvr, name, why)
}

/// Creates the 409 for a precondition that does not hold.
pub(super) fn precondition(
    gvr: &GroupVersionResource,
    name: &str,
    field: &str,
    wanted: &str,
    found: &str,
) -> Status {
    let why = format!(
        "Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {found}"
    );
    conflict_because(gvr, name, &why)
}

fn conflict_because(gvr: &GroupVersionResource, name: &str, why: &str) -> Status {
    let target = gvr.group_resource();
    let message = format!("Operation cannot be fulfilled on {target} \"{name}\": {why}");
    Status::failure(409, "Conflict", message).with_details(details(gvr, name))
}

/// Creates the 422 for a missing or invalid value of `field`.
pub(super) fn invalid(resource: &Resource, name: &str, field: &str, why: &str) -> Status {
    let gvr = &resource.gvr;
    let kind = match gvr.group.as_str() {
        "" => resource.kind.clone(),
        group => format!("{}.{group}", resource.kind),
    };
    let reason = if why.starts_with("Required value") {
        "FieldValueRequired"
    } else {
        "FieldValueInvalid"
    };
    let cause = StatusCause {
        reason: reason.to_owned(),
        message: why.to_owned(),
        field: field.to_owned(),
    };
    let message = format!("{kind} \"{name}\" is invalid: {field}: {why}");
    Status::failure(422, "Invalid", message).with_details(StatusDetails {
        name: name.to_owned(),
        group: gvr.group.clone(),
        kind: resource.kind.clone(),
        causes: vec![cause],
        ..StatusDetails::default()
    })
}

/// Creates the 415 for a content type or patch that a real API server
/// supports and the simulator does not.
pub(super) fn not_simulated(what: &str) -> Status {
    let message = format!("the simulated API server has no {what}");
    Status::failure(415, "UnsupportedMediaType", message)
}

/// Creates the 503 that every request gets while the API server is cut off.
pub(super) fn away() -> Status {
    let message = "the simulated API server is cut off";
    Status::failure(503, "ServiceUnavailable", message)
}

/// Creates the 404 for a path that a real API server serves and the simulator does not.
pub(super) fn not_simulated_path(what: &str) -> Status {
    let message = format!("the simulated API server has no {what}");
    Status::failure(404, "NotFound", message)
}

/// Creates the 406 for requests that do not accept JSON.
pub(super) fn not_acceptable() -> Status {
    let message = "the simulated API server has no answers but in JSON; \
                   only the following media types are accepted: application/json";
    Status::failure(406, "NotAcceptable", message)
}

/// Creates a refusal as plain text. On paths that serve no Kubernetes objects, kubectl
/// prints only plain-text messages.
pub(super) fn plain_text_status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    server::plain_text(code, status.message.clone() + "\n")
}

/// Creates the plain-text 404 for a path that has no handler.
pub(super) fn page_not_found() -> Response<Body> {
    let mut response = server::plain_text(StatusCode::NOT_FOUND, "404 page not found\n");
    let nosniff = HeaderValue::from_static("nosniff");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Creates the 500 for a deprecated `/watch` or `/proxy` path that does not name a resource.
pub(super) fn no_request_info(path: &str) -> Response<Body> {
    let text = format!(
        "Internal Server Error: \"{path}\": failed to create RequestInfo: unable to determine kind \
         and namespace from url, {path}\n"
    );
    let mut response = server::plain_text(StatusCode::INTERNAL_SERVER_ERROR, text);
    response.headers_mut().remove(header::CACHE_CONTROL);
    response
}

/// Creates the 413 for a request body of more than `limit` bytes.
pub(super) fn too_large(limit: usize) -> Status {
    let message = format!("Request entity too large: limit is {limit}");
    Status::failure(413, "RequestEntityTooLarge", message)
}
