//! The alerts, recording rules and dashboard in `deploy/helm/kubefan/mixin`.

mod expressions; // what a PromQL expression names
mod faults; // alerts fire at faults that the tests make
mod history; // scrapes as a history for promtool
mod names; // metrics, labels, runbooks and tests exist
mod promtool; // promtool's checks, and the unit tests of the alerts

use std::path::PathBuf;

use serde_json::Value;

use crate::repository::read;
use crate::support::programs::chart::chart;

/// The unit tests of the alerts.
const ALERT_TESTS: &str = "tests/mixin/alerts_test.yaml";

fn file(name: &str) -> PathBuf {
    chart().join("mixin").join(name)
}

/// Returns the rules in a file, with all their fields.
fn rules(name: &str) -> Vec<Value> {
    let parsed: Value = serde_saphyr::from_str(&read(&file(name))).expect("YAML");
    let groups = parsed["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .map(|group| group["rules"].as_array().expect("rules"));
    rules.flatten().cloned().collect()
}

/// Returns the field of a rule as text.
fn text<'a>(rule: &'a Value, pointer: &str) -> &'a str {
    let text = rule.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no {pointer} in {rule}"))
}

/// Returns the title and the expression of each query of the dashboard, for all jobs and instances.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&read(&file("dashboard.json"))).expect("dashboard.json is JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = text(target, "/expr")
                .replace("$__rate_interval", "5m")
                .replace("$job", ".*")
                .replace("$instance", ".*");
            queries.push((text(panel, "/title").to_owned(), expression));
        }
    }
    assert!(queries.len() > 20, "{queries:?}");
    queries
}
