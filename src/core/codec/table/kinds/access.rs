//! Computes the cells of role bindings and of the kinds that limit what may run.

use std::collections::HashMap;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{age_of, list, name, number, or, text};
use crate::codec::table::part::Part;

/// The cell for a limit of a disruption budget that is not set.
const NOT_SET: &str = "N/A";

/// Returns the cells of a RoleBinding or ClusterRoleBinding.
pub(super) fn role_binding(binding: Part<'_>) -> Vec<Cell> {
    let role = binding.at("roleRef");
    let subjects = list(binding.at("subjects"));
    let of_kind = |kind: &str, shown: fn(Part<'_>) -> String| {
        let subjects = subjects.iter().copied();
        let found = subjects.filter(|subject| subject.at("kind") == kind);
        Cell::from(found.map(shown).collect::<Vec<_>>().join(", "))
    };
    let by_name = |subject: Part<'_>| text(subject.at("name")).into_owned();
    vec![
        name(binding),
        format!("{}/{}", text(role.at("kind")), text(role.at("name"))).into(),
        age_of(binding),
        of_kind("User", by_name),
        of_kind("Group", by_name),
        of_kind("ServiceAccount", |account| {
            format!(
                "{}/{}",
                text(account.at("namespace")),
                text(account.at("name"))
            )
        }),
    ]
}

pub(super) fn pod_disruption_budget(budget: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (budget.at("spec"), budget.at("status"));
    let limit = |value: Part<'_>| match (value.number(), value.as_str()) {
        (Some(count), _) => Cell::from(count),
        (None, Some(percentage)) => percentage.into(),
        (None, None) => NOT_SET.into(),
    };
    vec![
        name(budget),
        limit(spec.at("minAvailable")),
        limit(spec.at("maxUnavailable")),
        number(status.at("disruptionsAllowed")).into(),
        age_of(budget),
    ]
}

pub(super) fn resource_quota(quota: Part<'_>) -> Vec<Cell> {
    let status = quota.at("status");
    let used: HashMap<_, _> = status.at("used").members().collect();
    let mut hard: Vec<_> = status.at("hard").members().collect();
    hard.sort_by(|(resource, _), (other, _)| resource.cmp(other));
    let shown = |is_limit: bool| {
        let chosen = hard
            .iter()
            .filter(|(resource, _)| resource.starts_with("limits.") == is_limit);
        let texts = chosen.map(|(resource, hard)| {
            let used = used.get(resource).map(|used| text(*used));
            let used = or(used.unwrap_or_default(), "0");
            format!("{resource}: {used}/{}", or(text(*hard), "0"))
        });
        Cell::from(texts.collect::<Vec<_>>().join(", "))
    };
    vec![name(quota), shown(false), shown(true), age_of(quota)]
}

pub(super) fn priority_class(class: Part<'_>) -> Vec<Cell> {
    vec![
        name(class),
        number(class.at("value")).into(),
        (class.at("globalDefault") == true).into(),
        age_of(class),
        text(class.at("preemptionPolicy")).into(),
    ]
}

pub(super) fn runtime_class(class: Part<'_>) -> Vec<Cell> {
    vec![name(class), text(class.at("handler")).into(), age_of(class)]
}

/// Returns the cells of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
pub(super) fn webhook_configuration(configuration: Part<'_>) -> Vec<Cell> {
    vec![
        name(configuration),
        list(configuration.at("webhooks")).len().into(),
        age_of(configuration),
    ]
}
