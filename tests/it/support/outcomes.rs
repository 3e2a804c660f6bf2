//! Reads from kubefan's metrics how it answered requests.

use std::collections::BTreeMap;

use crate::support::programs::kubefan::Kubefan;

/// Counts the LISTs of a resource by the `outcome` label in the metrics of several kubefans.
pub(crate) async fn list_outcomes(kubefans: &[Kubefan], resource: &str) -> BTreeMap<String, u64> {
    let wanted = [
        format!(r#"resource="{resource}""#),
        r#"verb="list""#.to_owned(),
    ];
    let mut counts = BTreeMap::new();
    for kubefan in kubefans {
        let metrics = kubefan.metrics().await;
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("kubefan_requests_total{"));
        for line in lines.filter(|line| wanted.iter().all(|label| line.contains(label.as_str()))) {
            let outcome = line
                .split(r#"outcome=""#)
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            let value = line
                .rsplit(' ')
                .next()
                .and_then(|value| value.parse::<f64>().ok());
            *counts
                .entry(outcome.expect("an outcome").to_owned())
                .or_default() += value.expect("a number") as u64;
        }
    }
    counts
}

/// Returns the number of requests with a verb and an outcome (`cache` or
/// `forwarded`) in kubefan's metrics.
pub(crate) fn request_count(metrics: &str, outcome: &str, verb: &str) -> f64 {
    let wanted = [format!("outcome=\"{outcome}\""), format!("verb=\"{verb}\"")];
    let series = metrics.lines().filter(|line| {
        line.starts_with("kubefan_requests_total{")
            && wanted.iter().all(|label| line.contains(label.as_str()))
    });
    let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
