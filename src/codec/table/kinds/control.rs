//! Computes the cells of what controls requests to the API server, and of certificates.

use std::time::Duration;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use crate::codec::table::age::Moment;
use crate::codec::table::age::duration;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

pub(super) fn priority_level(level: &Value) -> Vec<Cell> {
    let spec = &level["spec"];
    let limited = &spec["limited"];
    let queuing = &limited["limitResponse"]["queuing"];
    let count = |parent: &Value, key: &str| match parent {
        Value::Object(_) => Cell::from(number(&parent[key])),
        _ => NONE.into(),
    };
    vec![
        name(level),
        text(&spec["type"]).into(),
        count(limited, "nominalConcurrencyShares"),
        count(queuing, "queues"),
        count(queuing, "handSize"),
        count(queuing, "queueLengthLimit"),
        age_of(level),
    ]
}

pub(super) fn validating_admission_policy(policy: &Value) -> Vec<Cell> {
    let spec = &policy["spec"];
    let kind = &spec["paramKind"];
    let kind = match kind {
        Value::Object(_) => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])),
        _ => UNSET.to_owned(),
    };
    vec![
        name(policy),
        list(&spec["validations"]).len().into(),
        kind.into(),
        age_of(policy),
    ]
}

pub(super) fn certificate_signing_request(request: &Value) -> Vec<Cell> {
    let (spec, status) = (&request["spec"], &request["status"]);
    let has = |kind: &str| {
        let mut conditions = list(&status["conditions"]).iter();
        conditions.any(|condition| condition["type"] == kind)
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
    if !text(&status["certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    let lifetime = spec["expirationSeconds"].as_u64();
    let lifetime = lifetime.map(|seconds| {
        let end = UNIX_EPOCH + Duration::from_secs(seconds);
        duration(Moment::from(UNIX_EPOCH), Moment::from(end))
    });
    vec![
        name(request),
        age_of(request),
        or(text(&spec["signerName"]), NONE).into(),
        text(&spec["username"]).into(),
        lifetime.unwrap_or_else(|| NONE.to_owned()).into(),
        state.into(),
    ]
}
