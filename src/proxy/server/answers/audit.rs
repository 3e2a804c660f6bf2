//! Audit events of the requests that kubefan answers itself, from a cache or by repeating a 403.
//! They are written like those of the API server at the level Metadata (`audit.k8s.io/v1`).
//! Forwarded requests are in the API server's own audit log, with the same audit ID.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::HeaderValue;
use http::uri::PathAndQuery;
use jiff::Timestamp;
use serde::Serialize;

use super::line_text::{MAX_AUDIT_ID, MAX_USER_AGENT, header_text, micro_time, truncated};
use super::outcome::Outcome;
use super::record::{Arrival, Record};
use crate::identity::User;
use crate::line_log::LineLog;
use crate::server::request::Verb;

/// The most source addresses in an event. Clients can send any number of addresses. An event has
/// the last ones, because those are the addresses of proxies.
const MAX_SOURCE_IPS: usize = 64;

/// Annotation that distinguishes these events from the API server's.
const ANSWERED_BY: &str = "kubefan/answered-by";

/// The value of the annotation if a cache has answered.
const BY_CACHE: &str = "cache";
/// The value of the annotation if the answer is the API server's 403 for the same read of this user,
/// some seconds ago.
const BY_KEPT_REFUSAL: &str = "kept-refusal";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: Cow<'a, str>,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    /// The caller's user; empty if callers are not authenticated.
    user: &'a User,
    #[serde(rename = "sourceIPs")]
    source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: Cow<'a, str>,
    object_ref: ObjectReference<'a>,
    response_status: ResponseStatus,
    request_received_timestamp: String,
    stage_timestamp: String,
    annotations: BTreeMap<&'static str, &'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference<'a> {
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    api_version: &'a str,
}

#[derive(Serialize)]
struct ResponseStatus {
    metadata: BTreeMap<String, String>,
    code: u16,
}

/// Makes `arrival` own what the logs need of the head of the request, cut as in their lines. Until
/// then it holds the memory of the whole head, because URI and headers share it.
pub(super) fn release_head(arrival: &mut Arrival) {
    let target = arrival.uri.path_and_query();
    let copy = target.map(|target| PathAndQuery::try_from(target.as_str()));
    if let Some(Ok(copy)) = copy {
        arrival.uri = copy.into();
    }
    let cut = |value: &HeaderValue, most| {
        let text = truncated(header_text(Some(value)), most).into_owned();
        HeaderValue::try_from(text).expect("it is ASCII")
    };
    arrival.audit_id = cut(&arrival.audit_id, MAX_AUDIT_ID);
    let user_agent = arrival.user_agent.as_ref();
    arrival.user_agent = user_agent.map(|value| cut(value, MAX_USER_AGENT));
    if let Some(headers) = &mut arrival.headers {
        let named = [&headers.forwarded_for, &headers.real_ip].map(Option::as_ref);
        let all: Vec<_> = source_ips(named, arrival.peer)
            .iter()
            .map(ToString::to_string)
            .collect();
        headers.forwarded_for = HeaderValue::try_from(all.join(",")).ok();
        headers.real_ip = None;
    }
}

/// Returns true if `record` is in the audit log: kubefan has answered the request itself.
pub(super) fn is_audited(record: &Record) -> bool {
    answered_by(record).is_some()
}

/// Writes the event for the start of a watch, when the head of its answer is known.
pub(super) fn began(log: &LineLog, record: &Record) {
    if record.arrival.info.verb == Verb::Watch {
        write(log, record, "ResponseStarted");
    }
}

/// Writes the event for the end of an answer.
pub(super) fn ended(log: &LineLog, record: &Record) {
    write(log, record, "ResponseComplete");
}

/// Returns the value of the annotation; `None` if the request is not audited.
fn answered_by(record: &Record) -> Option<&'static str> {
    match record.outcome {
        Outcome::Cache(_) => Some(BY_CACHE),
        Outcome::KeptRefusal => Some(BY_KEPT_REFUSAL),
        Outcome::Forwarded(_) | Outcome::Rejected(_) | Outcome::Unanswered => None,
    }
}

fn write(log: &LineLog, record: &Record, stage: &'static str) {
    let Some(by) = answered_by(record) else {
        return;
    };
    let (arrival, info) = (&record.arrival, &record.arrival.info);
    let no_user = User::default();
    let named = match &arrival.headers {
        Some(headers) => [&headers.forwarded_for, &headers.real_ip].map(Option::as_ref),
        None => [None, None],
    };
    let event = Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: "Metadata",
        audit_id: truncated(header_text(Some(&arrival.audit_id)), MAX_AUDIT_ID),
        stage,
        request_uri: arrival
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str()),
        verb: info.verb.as_str(),
        user: record.user().unwrap_or(&no_user),
        source_ips: source_ips(named, arrival.peer),
        user_agent: truncated(header_text(arrival.user_agent.as_ref()), MAX_USER_AGENT),
        object_ref: ObjectReference {
            resource: &info.resource,
            namespace: &info.namespace,
            name: &info.name,
            api_group: &info.group,
            api_version: &info.version,
        },
        response_status: ResponseStatus {
            metadata: BTreeMap::new(),
            code: record.status.as_u16(),
        },
        request_received_timestamp: micro_time(arrival.time),
        stage_timestamp: micro_time(Timestamp::now()),
        annotations: BTreeMap::from([(ANSWERED_BY, by)]),
    };
    let mut line = serde_json::to_string(&event).expect("an event is plain text");
    line.push('\n');
    log.append(line);
}

/// Returns the addresses from which the request came, as the API server finds them: first the
/// addresses that proxies name, and then the address of the connection. Only the address of the
/// connection is reliable. `X-Forwarded-For` may name several addresses, and `X-Real-Ip` one.
fn source_ips([forwarded_for, real_ip]: [Option<&HeaderValue>; 2], peer: IpAddr) -> Vec<IpAddr> {
    let named = |value| {
        let addresses = header_text(value).split(',');
        let addresses = addresses.filter_map(|address| address.trim().parse().ok());
        addresses.collect::<Vec<IpAddr>>()
    };
    let mut all = named(forwarded_for);
    if let [real] = named(real_ip)[..]
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
            let value = |wanted: &str| {
                let named = headers.iter().find(|(name, _)| *name == wanted)?;
                Some(HeaderValue::from_static(named.1))
            };
            let named = [value("x-forwarded-for"), value("x-real-ip")];
            let peer = "::ffff:10.0.0.9".parse().expect("an address");
            let found: Vec<String> = source_ips(named.each_ref().map(Option::as_ref), peer)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "{headers:?}");
        }
    }

    #[test]
    fn an_event_has_the_last_addresses() {
        let forwarded = "192.0.2.1,".repeat(9_000);
        let forwarded = HeaderValue::try_from(forwarded).expect("a header value");
        let peer: IpAddr = "10.0.0.9".parse().expect("an address");
        let found = source_ips([Some(&forwarded), None], peer);
        assert_eq!((found.len(), found.last()), (MAX_SOURCE_IPS, Some(&peer)));
    }
}
