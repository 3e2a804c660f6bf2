//! Computes the cells of role bindings and of the kinds that limit what may run.

use serde_json::Value;

use crate::codec::table::cell::Cell;
use crate::codec::table::value::age_of;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

/// The cell for a limit of a disruption budget that is not set.
const NOT_SET: &str = "N/A";

/// The cells of a RoleBinding or ClusterRoleBinding.
pub(super) fn role_binding(binding: &Value) -> Vec<Cell> {
    let role = &binding["roleRef"];
    let subjects = list(&binding["subjects"]);
    let of_kind = |kind: &str, shown: fn(&Value) -> String| {
        let found = subjects.iter().filter(|subject| subject["kind"] == kind);
        Cell::from(found.map(shown).collect::<Vec<_>>().join(", "))
    };
    let by_name = |subject: &Value| text(&subject["name"]).to_owned();
    vec![
        name(binding),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        age_of(binding),
        of_kind("User", by_name),
        of_kind("Group", by_name),
        of_kind("ServiceAccount", |account| {
            format!("{}/{}", text(&account["namespace"]), text(&account["name"]))
        }),
    ]
}

pub(super) fn pod_disruption_budget(budget: &Value) -> Vec<Cell> {
    let (spec, status) = (&budget["spec"], &budget["status"]);
    let limit = |value: &Value| match value {
        Value::Number(count) => Cell::from(count.to_string()),
        Value::String(percentage) => Cell::from(percentage.as_str()),
        _ => NOT_SET.into(),
    };
    vec![
        name(budget),
        limit(&spec["minAvailable"]),
        limit(&spec["maxUnavailable"]),
        number(&status["disruptionsAllowed"]).into(),
        age_of(budget),
    ]
}

pub(super) fn resource_quota(quota: &Value) -> Vec<Cell> {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let mut hard: Vec<_> = hard.collect();
    hard.sort_by_key(|(resource, _)| resource.as_str());
    let shown = |is_limit: bool| {
        let chosen = hard
            .iter()
            .filter(|(resource, _)| resource.starts_with("limits.") == is_limit);
        let texts = chosen.map(|(resource, hard)| {
            let used = or(text(&status["used"][resource.as_str()]), "0");
            format!("{resource}: {used}/{}", or(text(hard), "0"))
        });
        Cell::from(texts.collect::<Vec<_>>().join(", "))
    };
    vec![name(quota), shown(false), shown(true), age_of(quota)]
}

pub(super) fn priority_class(class: &Value) -> Vec<Cell> {
    vec![
        name(class),
        number(&class["value"]).into(),
        (class["globalDefault"] == true).into(),
        age_of(class),
        text(&class["preemptionPolicy"]).into(),
    ]
}

pub(super) fn runtime_class(class: &Value) -> Vec<Cell> {
    vec![name(class), text(&class["handler"]).into(), age_of(class)]
}

/// The cells of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
pub(super) fn webhook_configuration(configuration: &Value) -> Vec<Cell> {
    vec![
        name(configuration),
        list(&configuration["webhooks"]).len().into(),
        age_of(configuration),
    ]
}
