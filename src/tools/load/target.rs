//! Connects to the server under test, and refuses a remote server that the user did not name.

use std::net::IpAddr;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use kubefan_core::api::Resource;
use kubefan_core::body::{Body, full};
use kubefan_core::upstream;
use kubefan_core::upstream::{Client, ClientConfig, Discovery};

use super::error::Error;

/// The time limit for the headers of an answer. It is long because slow answers are measured. The
/// API server itself gives up after 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
const OUR_USER_AGENT: &str = concat!("kubefan-load/", env!("CARGO_PKG_VERSION"));

/// Connects to a server that the user named or that is on this machine. Refuses any other server.
/// `flags` are the flags that could name the server; the error mentions them.
pub(super) async fn connect(config: &ClientConfig, flags: &'static str) -> Result<Client, Error> {
    let patient = ClientConfig {
        answer_timeout: ANSWER_TIMEOUT,
        ..config.clone()
    };
    let client = Client::connect(patient).await?;
    if is_named(config) || is_loopback(client.server()) {
        Ok(client)
    } else {
        Err(Error::Refused(format!(
            "{} is the current context's server and is not on this machine: a load test may harm it; \
             name it with {flags} to test it",
            client.server()
        )))
    }
}

/// Returns true if a flag names the server or its context. Otherwise, the server comes from the
/// kubeconfig's current context.
fn is_named(config: &ClientConfig) -> bool {
    config.server.is_some() || config.context.is_some()
}

fn is_loopback(server: &str) -> bool {
    let uri: Result<Uri, _> = server.parse();
    let host = uri.ok().and_then(|uri| uri.host().map(str::to_owned));
    let host = host.unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Finds the resource `name` and checks that it is namespaced and has the verbs that the test
/// needs.
pub(super) async fn resource(client: &Client, name: &str) -> Result<Resource, Error> {
    let found = Discovery::new(client.clone()).fetch(|| None).await;
    let mapper = found.map_err(server_error(|| {
        "discover the server's resources".to_owned()
    }))?;
    let resource = mapper.find(name);
    let refused = |problem: String| Error::Refused(format!("--resource: {problem}"));
    let resource = resource.map_err(|error| refused(error.to_string()))?;
    if !resource.namespaced {
        return Err(refused(format!(
            "{} are not namespaced, and a load test creates objects only in a namespace",
            resource.gvr.group_resource()
        )));
    }
    let verbs = ["create", "patch", "deletecollection", "list", "watch"];
    match verbs.iter().find(|verb| !resource.can(verb)) {
        None => Ok(Resource::clone(resource)),
        Some(verb) => Err(refused(format!(
            "the server does not support {verb} for {}",
            resource.gvr.group_resource()
        ))),
    }
}

/// Returns a function that turns an upstream error into [`Error::Server`]. `what` describes the
/// request and follows "cannot" in the message.
pub(super) fn server_error(what: impl FnOnce() -> String) -> impl FnOnce(upstream::Error) -> Error {
    |source| Error::Server {
        what: what(),
        source,
    }
}

/// Builds a request with the load test's user agent. `path` is built by the load test, from names
/// that need no percent-encoding.
pub(super) fn request(
    method: Method,
    path: &str,
    accept: &str,
    body: Body,
) -> Result<Request<Body>, upstream::Error> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(USER_AGENT, HeaderValue::from_static(OUR_USER_AGENT))
        .header(ACCEPT, accept)
        .body(body)
        .map_err(|error| upstream::Error::Request(error.into()))
}

/// Builds a request with a JSON body and the load test's user agent.
pub(super) fn json_request(
    method: Method,
    path: &str,
    content_type: &'static str,
    body: String,
) -> Result<Request<Body>, upstream::Error> {
    let mut request = request(method, path, "application/json", full(body))?;
    let content_type = HeaderValue::from_static(content_type);
    request.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_only() {
        for (server, expected) in [
            ("http://127.0.0.1:8001", true),
            ("https://[::1]:6443/prefix", true),
            ("http://localhost:8001", true),
            ("https://10.0.0.1:6443", false),
            ("https://localhost.example.com", false),
            ("https://127.0.0.1.example.com", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_loopback(server), expected, "{server}");
        }
    }
}
