//! How answers are laid out, as the request's headers ask for it.

use http::HeaderMap;
use http::Response;
use http::header;
use http_body_util::BodyExt;

use crate::api::Query;
use crate::api::Status;
use crate::api::WireFormat;
use crate::api::pretty_parameter;
use crate::api::should_indent;
use crate::server;
use crate::server::Body;

use super::print;
use super::read::forms;

/// The `Accept` header; empty when there is none.
pub(super) fn accept_header(headers: &HeaderMap) -> String {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    accept.unwrap_or_default().to_owned()
}

/// The answer that tells `status`, in the layout that the client wants.
pub(super) async fn status_response(
    status: &Status,
    headers: &HeaderMap,
    query: &str,
) -> Response<Body> {
    let response = server::respond(status, WireFormat::Json);
    if forms::indents_errors(&accept_header(headers)) || is_pretty(headers, query) {
        indent(response).await
    } else {
        response
    }
}

/// True when answers are to be indented, whatever their form.
pub(super) fn is_pretty(headers: &HeaderMap, query: &str) -> bool {
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    let parameter = pretty_parameter(&Query::parse(query));
    should_indent(parameter, false, agent.unwrap_or_default())
}

/// The same answer for people: without a line's end, as the API server has it.
pub(super) async fn indent(response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        let failed = Status::internal_error("the answer could not be read");
        return server::respond(&failed, WireFormat::Json);
    };
    let body = body.to_bytes();
    let body = match std::str::from_utf8(&body) {
        Ok(text) => print::indent_json(text).into(),
        Err(_) => body,
    };
    Response::from_parts(parts, server::full(body))
}
