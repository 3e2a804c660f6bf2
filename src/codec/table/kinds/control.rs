//! Computes the cells of what controls requests to the API server, and of certificates.

use std::time::Duration;
use std::time::UNIX_EPOCH;

use crate::codec::table::age::Moment;
use crate::codec::table::age::duration;
use crate::codec::table::cell::Cell;
use crate::codec::table::part::Part;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

pub(super) fn priority_level(level: Part<'_>) -> Vec<Cell> {
    let spec = level.at("spec");
    let limited = spec.at("limited");
    let queuing = limited.at("limitResponse").at("queuing");
    let count = |parent: Part<'_>, key: &str| match parent.is_object() {
        true => Cell::from(number(parent.at(key))),
        false => NONE.into(),
    };
    vec![
        name(level),
        text(spec.at("type")).into(),
        count(limited, "nominalConcurrencyShares"),
        count(queuing, "queues"),
        count(queuing, "handSize"),
        count(queuing, "queueLengthLimit"),
        age_of(level),
    ]
}

pub(super) fn validating_admission_policy(policy: Part<'_>) -> Vec<Cell> {
    let spec = policy.at("spec");
    let kind = spec.at("paramKind");
    let kind = match kind.is_object() {
        true => format!("{}/{}", text(kind.at("apiVersion")), text(kind.at("kind"))),
        false => UNSET.to_owned(),
    };
    vec![
        name(policy),
        list(spec.at("validations")).len().into(),
        kind.into(),
        age_of(policy),
    ]
}

pub(super) fn certificate_signing_request(request: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (request.at("spec"), request.at("status"));
    let has = |kind: &str| {
        let mut conditions = status.at("conditions").items();
        conditions.any(|condition| condition.at("type") == kind)
    };
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(status.at("certificate")).is_empty() {
        state.push_str(",Issued");
    }
    let lifetime = spec.at("expirationSeconds").as_i64();
    let lifetime = lifetime.and_then(|seconds| u64::try_from(seconds).ok());
    let lifetime = lifetime.map(|seconds| {
        let end = UNIX_EPOCH + Duration::from_secs(seconds);
        let lifetime = duration(Moment::from(UNIX_EPOCH), Moment::from(end));
        Cell::from(lifetime.as_str())
    });
    vec![
        name(request),
        age_of(request),
        or(text(spec.at("signerName")), NONE).into(),
        text(spec.at("username")).into(),
        lifetime.unwrap_or_else(|| NONE.into()),
        state.into(),
    ]
}
