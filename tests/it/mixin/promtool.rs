//! promtool's checks of the rules, and the unit tests of the alerts.

use super::{ALERT_TESTS, file};
use crate::repository::root;
use crate::support::programs::chart::{Tools, succeeded};

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs promtool: see CONTRIBUTING.md")]
fn promtool_accepts_the_rules() {
    let tools = Tools::find();
    let [rules, alerts] =
        ["rules.yaml", "alerts.yaml"].map(|name| file(name).display().to_string());
    let arguments = [
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        &rules,
        &alerts,
    ];
    succeeded(&tools.run("promtool", &arguments)).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
#[cfg_attr(not(deploy_tools), ignore = "needs promtool: see CONTRIBUTING.md")]
fn each_alert_fires_at_its_fault_and_resolves_after_it() {
    let tools = Tools::find();
    let tests = root().join(ALERT_TESTS).display().to_string();
    let ended = tools.run("promtool", &["test", "rules", &tests]);
    succeeded(&ended).unwrap_or_else(|error| panic!("{error}"));
}
