//! Turns scrapes into a history of hours, in which promtool evaluates the alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::file;
use crate::support::programs::chart::{Tools, succeeded};

/// The end of the fault, as promtool writes times.
pub(super) const END_OF_FAULT: &str = "59m";
const END_OF_HEALTH: &str = "29m";
const END_OF_RECOVERY: &str = "119m";
/// The minutes of each phase.
const MINUTES: [u32; 3] = [30, 30, 60];

/// Two scrapes of a kubefan. In the history, counters grow in each minute as much as between the two,
/// and gauges have the values of the second.
pub(super) struct Phase {
    before: String,
    after: String,
}

/// The samples of a scrape, by series.
type Samples<'a> = BTreeMap<&'a str, f64>;

impl Phase {
    /// A phase in which counters do not grow.
    pub(super) fn quiet(scrape: &str) -> Self {
        Self::between(scrape, scrape)
    }

    pub(super) fn between(before: &str, after: &str) -> Self {
        Self {
            before: before.to_owned(),
            after: after.to_owned(),
        }
    }
}

/// Checks that `alert` fires at the end of the fault, and no other alert, and that none fires before the
/// fault and an hour after it. The phases are before, during and after the fault. `more` are further
/// tests of promtool.
pub(super) fn fires_during_the_fault(
    tools: &Tools,
    alert: &str,
    phases: &[Phase; 3],
    more: Vec<Value>,
) {
    let firing = r#"group by (alertname) (ALERTS{alertstate="firing"})"#;
    let expected = json!([{"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1}]);
    let mut tests = vec![
        json!({"expr": firing, "eval_time": END_OF_HEALTH}),
        json!({"expr": firing, "eval_time": END_OF_FAULT, "exp_samples": expected}),
        json!({"expr": firing, "eval_time": END_OF_RECOVERY}),
    ];
    tests.extend(more);
    let test = json!({
        "interval": "1m", "input_series": series(phases), "promql_expr_test": tests,
    });
    let all = json!({
        "rule_files": [file("rules.yaml"), file("alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [test],
    });
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("history.yaml");
    // JSON is YAML.
    fs::write(&path, all.to_string()).expect("room");
    let ended = tools.run(
        "promtool",
        &["test".as_ref(), "rules".as_ref(), path.as_os_str()],
    );
    succeeded(&ended).unwrap_or_else(|error| panic!("{alert}: {error}"));
}

/// Returns all series of the phases, with their values in each minute.
fn series(phases: &[Phase; 3]) -> Vec<Value> {
    let phases = phases
        .each_ref()
        .map(|phase| [samples(&phase.before), samples(&phase.after)]);
    let names: BTreeSet<_> = phases.iter().flatten().flat_map(BTreeMap::keys).collect();
    let of_names = names.into_iter();
    of_names
        .map(|name| json!({"series": of_target(name), "values": values(name, &phases)}))
        .collect()
}

fn samples(scrape: &str) -> Samples<'_> {
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    let parse = |value: &str| {
        let number = value.parse::<f64>();
        number.unwrap_or_else(|error| panic!("{value}: {error}"))
    };
    samples
        .map(|(series, value)| (series, parse(value)))
        .collect()
}

/// Adds the labels of a scraped target.
fn of_target(series: &str) -> String {
    const TARGET: &str = r#"job="kubefan",instance="a""#;
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{{TARGET},{labels}"),
        None => format!("{series}{{{TARGET}}}"),
    }
}

/// Returns the values of a series in promtool's notation: `START+STEPxTIMES`, `VALUExTIMES`, or
/// `_xTIMES` for none.
fn values(name: &str, phases: &[[Samples<'_>; 2]; 3]) -> String {
    let (family, _) = name.split_once('{').unwrap_or((name, ""));
    let is_counter = ["_total", "_bucket", "_sum", "_count"]
        .iter()
        .any(|end| family.ends_with(end));
    let mut reached = None;
    let of_phases = phases
        .iter()
        .zip(MINUTES)
        .map(|([before, after], minutes)| {
            let times = minutes - 1;
            let Some(now) = after.get(name) else {
                return format!("_x{minutes}");
            };
            if !is_counter {
                return format!("{now}x{times}");
            }
            // A series that is new was not counted before.
            let then = before.get(name).copied().unwrap_or_default();
            let start = reached.unwrap_or(then);
            let step = now - then;
            reached = Some(start + step * f64::from(minutes));
            format!("{start}+{step}x{times}")
        });
    of_phases.collect::<Vec<_>>().join(" ")
}

#[test]
fn counters_grow_and_gauges_stay() {
    let healthy = Phase::quiet("# TYPE a_total counter\na_total{b=\"c d\"} 5\ng 1\n");
    let fault = Phase::between(
        "a_total{b=\"c d\"} 5\n",
        "a_total{b=\"c d\"} 7\nn_total 3\ng 0\n",
    );
    let healed = Phase::quiet("a_total{b=\"c d\"} 9\nn_total 3\ng 1\n");
    let expected = json!([
        {"series": r#"a_total{job="kubefan",instance="a",b="c d"}"#, "values": "5+0x29 5+2x29 65+0x59"},
        {"series": r#"g{job="kubefan",instance="a"}"#, "values": "1x29 0x29 1x59"},
        {"series": r#"n_total{job="kubefan",instance="a"}"#, "values": "_x30 0+3x29 90+0x59"},
    ]);
    assert_eq!(json!(series(&[healthy, fault, healed])), expected);
}
