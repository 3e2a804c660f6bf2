//! Computes the cells of devices and of the claims for them.

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{age_of, is_deleted, joined, name, text};
use crate::codec::table::part::Part;

/// Returns the cells of a DeviceClass or ResourceClaimTemplate.
pub(super) fn name_and_age(object: Part<'_>) -> Vec<Cell> {
    vec![name(object), age_of(object)]
}

pub(super) fn resource_claim(claim: Part<'_>) -> Vec<Cell> {
    let status = claim.at("status");
    let is_deleted = is_deleted(claim);
    let is_allocated = status.at("allocation").is_object();
    let is_reserved = is_allocated && status.at("reservedFor").items().next().is_some();
    let states = [
        ("deleted", is_deleted),
        ("pending", !is_allocated && !is_deleted),
        ("allocated", is_allocated),
        ("reserved", is_reserved),
    ];
    let states = states.iter().filter(|(_, holds)| *holds);
    let states = joined(states.map(|(state, _)| *state));
    vec![name(claim), states.into(), age_of(claim)]
}

pub(super) fn resource_slice(slice: Part<'_>) -> Vec<Cell> {
    let spec = slice.at("spec");
    vec![
        name(slice),
        text(spec.at("nodeName")).into(),
        text(spec.at("driver")).into(),
        text(spec.at("pool").at("name")).into(),
        age_of(slice),
    ]
}
