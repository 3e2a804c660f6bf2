//! The layout of answers: compact or indented, as the request asks.

use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use kubefan_core::api::{Query, Status, WireFormat, pretty_parameter, should_indent};
use kubefan_core::codec::indented;
use kubefan_proxy::server;
use kubefan_proxy::server::Body;

use super::read::forms;

/// Returns the value of the `Accept` header; empty if it is missing.
pub(super) fn accept_header(headers: &HeaderMap) -> String {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|value| value.to_str().ok());
    accept.unwrap_or_default().to_owned()
}

/// Creates the response for `status`, indented if the client asks for it.
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

/// Returns true if the query or the user agent asks for indented JSON.
pub(super) fn is_pretty(headers: &HeaderMap, query: &str) -> bool {
    let agent = headers.get(header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok());
    let parameter = pretty_parameter(&Query::parse(query));
    should_indent(parameter, false, agent.unwrap_or_default())
}

/// Indents the JSON body of a response. Adds no line break at the end, like the API server.
pub(super) async fn indent(response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        let failed = Status::internal_error("the response could not be read");
        return server::respond(&failed, WireFormat::Json);
    };
    let body = indented(&body.to_bytes());
    Response::from_parts(parts, server::full(body))
}
