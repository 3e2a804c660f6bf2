//! Checks that the metrics and labels in the rules, the dashboard and the runbooks exist, and that each
//! alert has a runbook and a unit test.

use std::collections::BTreeSet;

use super::expressions::{Named, named};
use super::{ALERT_TESTS, queries, rules, text};
use crate::documents::{AT_GITHUB, code_words};
use crate::repository::{document, read, root, rust_files};

const RUNBOOKS: &str = "docs/runbooks.md";
/// Metrics of Prometheus, and of the library that measures the process.
const FOREIGN_METRICS: [&str; 5] = [
    "ALERTS",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "up",
];
/// Labels that Prometheus adds, and that of a histogram's buckets.
const FOREIGN_LABELS: [&str; 6] = [
    "alertname",
    "alertstate",
    "instance",
    "job",
    "le",
    "severity",
];
/// The files that have the values of a label.
const VALUES: [(&str, &[&str]); 8] = [
    ("code", &["src/proxy/identity/metrics.rs"]),
    ("kind", &["src/proxy/ledger/buffers.rs"]),
    ("listener", &["src/proxy/app/mod.rs"]),
    ("outcome", &["src/proxy/server/answers/outcome.rs"]),
    ("reason", &["src/proxy/server/decide/reason.rs"]),
    (
        "result",
        &[
            "src/core/informer/bridges.rs",
            "src/proxy/app/reload.rs",
            "src/proxy/line_log/mod.rs",
            "src/proxy/server/tables/mod.rs",
        ],
    ),
    ("verb", &["src/proxy/server/request/verb.rs"]),
    ("why", &["src/proxy/ledger/mod.rs"]),
];

/// Returns all expressions: those of the rules, of the dashboard and of the runbooks.
fn expressions() -> Vec<String> {
    let rules = ["rules.yaml", "alerts.yaml"].into_iter().flat_map(rules);
    let of_rules = rules.map(|rule| text(&rule, "/expr").to_owned());
    let of_dashboard = queries().into_iter().map(|(_, expression)| expression);
    let of_runbooks = code_words(&document(RUNBOOKS)).into_iter();
    let of_runbooks = of_runbooks.filter(|word| word.contains("kubefan_"));
    of_rules.chain(of_dashboard).chain(of_runbooks).collect()
}

/// Returns true for a code of an HTTP answer, or a pattern of codes such as `5..`.
fn is_code(value: &str) -> bool {
    value.len() == 3 && value.starts_with(|first: char| first.is_ascii_digit())
}

#[test]
fn every_metric_and_label_exists() {
    let files = rust_files(&root().join("src"));
    let sources: String = files.iter().map(|file| read(file)).collect();
    let is_quoted = |text: &str, word: &str| text.contains(&format!("\"{word}\""));
    let recorded = rules("rules.yaml");
    let recorded: BTreeSet<_> = recorded.iter().map(|rule| text(rule, "/record")).collect();
    let mut count = 0;
    for expression in expressions() {
        let Named {
            metrics,
            labels,
            values,
        } = named(&expression);
        for metric in &metrics {
            let name = metric.strip_suffix("_bucket").unwrap_or(metric);
            let is_declared = is_quoted(&sources, name)
                // The metrics of informers have a line each, with their help text.
                || sources.contains(&format!("\n{name}: "))
                || recorded.contains(name)
                || FOREIGN_METRICS.contains(&name);
            assert!(is_declared, "no metric {name}, in {expression}");
            count += 1;
        }
        for label in &labels {
            let is_known = is_quoted(&sources, label) || FOREIGN_LABELS.contains(&label.as_str());
            assert!(is_known, "no label {label}, in {expression}");
        }
        let own = values
            .iter()
            .filter(|(label, _)| !FOREIGN_LABELS.contains(&label.as_str()));
        for (label, value) in own {
            let files = VALUES.iter().find(|(name, _)| name == label);
            let (_, files) = files.unwrap_or_else(|| panic!("VALUES has no {label}"));
            let exists = files.iter().any(|file| is_quoted(&document(file), value));
            assert!(
                exists || (label == "code" && is_code(value)),
                "{files:?} have no {label} {value}, in {expression}"
            );
        }
    }
    assert!(count > 80, "only {count} metrics were found");
}

#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let alerts = rules("alerts.yaml");
    let runbooks = document(RUNBOOKS);
    let headings: Vec<_> = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let names: Vec<_> = alerts.iter().map(|alert| text(alert, "/alert")).collect();
    assert_eq!(headings, names, "{RUNBOOKS} (left) and the alerts differ");
    let tests = document(ALERT_TESTS);
    for alert in &alerts {
        let name = text(alert, "/alert");
        let severity = text(alert, "/labels/severity");
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}"
        );
        let runbook = format!("{AT_GITHUB}{RUNBOOKS}#{}", name.to_lowercase());
        assert_eq!(text(alert, "/annotations/runbook_url"), runbook);
        let fired = format!("alertname=\"{name}\"");
        let fired: Vec<_> = tests.lines().filter(|line| line.contains(&fired)).collect();
        assert!(!fired.is_empty(), "{ALERT_TESTS} does not fire {name}");
        let [summary, description] =
            ["summary", "description"].map(|key| text(alert, &format!("/annotations/{key}")));
        let templates = format!("{summary} {description}");
        for rest in templates.split("$labels.").skip(1) {
            let label = rest.split(' ').next().unwrap_or_default();
            let has_label = fired
                .iter()
                .all(|line| line.contains(&format!(" {label}=\"")));
            assert!(has_label, "{name} has no label {label}: {fired:?}");
        }
    }
}
