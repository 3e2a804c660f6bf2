//! Audit events of the requests that kubefan answers itself, from a cache or by repeating a 403.
//! They are written like those of the API server at the level Metadata (`audit.k8s.io/v1`).
//! Forwarded requests are in the API server's own audit log, with the same audit ID.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::{HeaderMap, Request, Response, StatusCode};
use jiff::Timestamp;
use kubefan_core::body::{Body, BodyGuard, guarded};
use serde::Serialize;

use crate::audit::AuditLog;
use crate::identity::{Caller, User};
use crate::server::request::RequestInfo;

/// Longest User-Agent, in bytes, that is written in full, as by the API server.
const MAX_USER_AGENT: usize = 1024;
/// The text that the API server writes after the beginning of a longer User-Agent.
const TRUNCATED: &str = "...TRUNCATED";
/// The most source addresses in an event. Clients can send any number of addresses. An event has
/// the last ones, because those are the addresses of proxies.
const MAX_SOURCE_IPS: usize = 64;

/// Annotation that distinguishes these events from the API server's.
const ANSWERED_BY: &str = "kubefan/answered-by";

/// A request that gets an audit event if kubefan answers it itself.
#[derive(Clone)]
pub(in crate::server) struct AuditedRequest {
    log: Arc<AuditLog>,
    event: Event,
}

/// An answer that kubefan gives itself. Its body owns this value, and an event is written when the
/// body is dropped.
pub(in crate::server) struct AuditedAnswer {
    request: AuditedRequest,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    /// The caller's user; empty if callers are not authenticated.
    user: User,
    #[serde(rename = "sourceIPs")]
    source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    object_ref: ObjectReference,
    response_status: ResponseStatus,
    request_received_timestamp: String,
    stage_timestamp: String,
    annotations: BTreeMap<&'static str, &'static str>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    api_version: String,
}

#[derive(Clone, Debug, Serialize)]
struct ResponseStatus {
    metadata: BTreeMap<String, String>,
    code: u16,
}

/// The annotation's value if a cache has answered.
pub(in crate::server) const BY_CACHE: &str = "cache";
/// The annotation's value if the answer is the API server's 403 for the same read of this user,
/// some seconds ago.
pub(in crate::server) const BY_KEPT_REFUSAL: &str = "kept-refusal";

/// Returns `response`, which kubefan gives to a request itself. If the request is `audited`, the
/// events of the answer are written to the audit log. `by` is the annotation's value.
pub(in crate::server) fn audited(
    audited: Option<AuditedRequest>,
    response: Response<Body>,
    by: &'static str,
) -> Response<Body> {
    let audited = audited.map(|request| request.answered(response.status(), by));
    guarded(response, audited)
}

impl AuditedRequest {
    /// Collects the facts of a request of `caller`, which came from `address`. The request has its
    /// audit ID.
    pub(in crate::server) fn new(
        log: &Arc<AuditLog>,
        request: &Request<Body>,
        info: &RequestInfo,
        caller: &Caller,
        address: IpAddr,
    ) -> Self {
        let header = |name: &str| {
            let value = request.headers().get(name);
            let text = value.and_then(|value| value.to_str().ok());
            text.unwrap_or_default().to_owned()
        };
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: header("audit-id"),
            stage: "",
            request_uri: request
                .uri()
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            verb: info.verb.as_str().to_owned(),
            user: caller
                .known()
                .map_or_else(User::default, |caller| caller.user().clone()),
            source_ips: source_ips(request.headers(), address),
            user_agent: truncated(header(USER_AGENT.as_str())),
            object_ref: ObjectReference {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: info.name.clone(),
                api_group: info.group.clone(),
                api_version: info.version.clone(),
            },
            response_status: ResponseStatus {
                metadata: BTreeMap::new(),
                code: 0,
            },
            request_received_timestamp: now(),
            stage_timestamp: String::new(),
            annotations: BTreeMap::new(),
        };
        Self {
            log: Arc::clone(log),
            event,
        }
    }

    /// Returns the answer, which begins with `status`. The start of a watch gets a separate event.
    fn answered(mut self, status: StatusCode, by: &'static str) -> AuditedAnswer {
        self.event.response_status.code = status.as_u16();
        self.event.annotations.insert(ANSWERED_BY, by);
        if self.event.verb == "watch" {
            self.write("ResponseStarted");
        }
        AuditedAnswer { request: self }
    }

    fn write(&mut self, stage: &'static str) {
        self.event.stage = stage;
        self.event.stage_timestamp = now();
        let mut line = serde_json::to_string(&self.event).expect("an event is plain text");
        line.push('\n');
        self.log.append(line);
    }
}

impl Drop for AuditedAnswer {
    fn drop(&mut self) {
        self.request.write("ResponseComplete");
    }
}

impl BodyGuard for AuditedAnswer {}

/// Shortens a User-Agent as the API server does. The User-Agent is plain ASCII.
fn truncated(mut user_agent: String) -> String {
    if user_agent.len() > MAX_USER_AGENT {
        user_agent.truncate(MAX_USER_AGENT);
        user_agent.push_str(TRUNCATED);
    }
    user_agent
}

/// Returns the time in the format of Kubernetes' `MicroTime`.
fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Returns the addresses from which the request came, as the API server finds them: first the
/// addresses that proxies name, and then the address of the connection. Only the address of the
/// connection is reliable.
fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let named = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let addresses = value.unwrap_or_default().split(',');
        let addresses = addresses.filter_map(|address| address.trim().parse().ok());
        addresses.collect::<Vec<IpAddr>>()
    };
    let mut all = named("x-forwarded-for");
    if let [real] = named("x-real-ip")[..]
        && !all.contains(&real)
    {
        all.push(real);
    }
    let peer = peer.to_canonical();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all.split_off(all.len().saturating_sub(MAX_SOURCE_IPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_as_the_api_server_finds_them() {
        for (headers, expected) in [
            (&[][..], &["10.0.0.9"][..]),
            (
                &[("x-forwarded-for", "192.0.2.1, nonsense,::1")],
                &["192.0.2.1", "::1", "10.0.0.9"],
            ),
            (&[("x-forwarded-for", "10.0.0.9")], &["10.0.0.9"]),
            (
                &[("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "192.0.2.2")],
                &["192.0.2.1", "192.0.2.2", "10.0.0.9"],
            ),
            (
                &[("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "192.0.2.1")],
                &["192.0.2.1", "10.0.0.9"],
            ),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().expect("a header value"));
            }
            let peer = "::ffff:10.0.0.9".parse().expect("an address");
            let found: Vec<String> = source_ips(&map, peer)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "{headers:?}");
        }
    }

    #[test]
    fn an_event_has_a_bounded_length() {
        let usual = "a".repeat(MAX_USER_AGENT);
        assert_eq!(truncated(usual.clone()), usual);
        let cut = truncated(format!("{usual}b"));
        assert_eq!(cut, format!("{usual}...TRUNCATED"));
        let forwarded = "192.0.2.1,".repeat(9_000);
        let mut map = HeaderMap::new();
        map.append(
            "x-forwarded-for",
            forwarded.parse().expect("a header value"),
        );
        let peer: IpAddr = "10.0.0.9".parse().expect("an address");
        let found = source_ips(&map, peer);
        assert_eq!((found.len(), found.last()), (MAX_SOURCE_IPS, Some(&peer)));
    }

    #[test]
    fn times_have_microseconds() {
        let text = now();
        assert_eq!(text.len(), "2026-01-01T00:00:00.000000Z".len(), "{text}");
        assert!(text.ends_with('Z'), "{text}");
    }
}
