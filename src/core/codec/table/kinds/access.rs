//! Computes cells of role bindings and of the kinds that limit what may run.

use std::collections::HashMap;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{or, slashed, text};
use crate::codec::table::part::Part;

/// Shows the subjects of the kind `kind`.
pub(super) fn subjects(subjects: Part<'_>, kind: &str) -> Cell {
    let subjects = subjects.items();
    let found = subjects.filter(|subject| subject.at("kind") == kind);
    let shown = found.map(|subject| match kind {
        "ServiceAccount" => slashed(subject, "namespace", "name"),
        _ => text(subject.at("name")).into_owned(),
    });
    shown.collect::<Vec<_>>().join(", ").into()
}

/// Shows a limit of a disruption budget: a number or a percentage.
pub(super) fn limit(value: Part<'_>, otherwise: &str) -> Cell {
    match value.number() {
        Some(count) => count.into(),
        None => value.as_str().unwrap_or(otherwise.into()).into(),
    }
}

/// Shows the limits or the other resources of a quota, as `chosen` says.
pub(super) fn quota(status: Part<'_>, chosen: &str) -> Cell {
    let used: HashMap<_, _> = status.at("used").members().collect();
    let is_chosen = |resource: &str| resource.starts_with("limits.") == (chosen == "limits");
    let hard = status.at("hard").members();
    let mut hard: Vec<_> = hard.filter(|(resource, _)| is_chosen(resource)).collect();
    hard.sort_by(|(resource, _), (other, _)| resource.cmp(other));
    let texts = hard.iter().map(|(resource, hard)| {
        let used = used.get(resource).map(|used| text(*used));
        let used = or(used.unwrap_or_default(), "0");
        format!("{resource}: {used}/{}", or(text(*hard), "0"))
    });
    texts.collect::<Vec<_>>().join(", ").into()
}
