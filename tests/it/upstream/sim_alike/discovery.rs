//! Compares the simulator's discovery documents with the API server's. The simulator may serve
//! fewer resources, but all that it serves must be described as by the API server.

use serde_json::Value;

use super::twins::Twins;
use crate::support::programs::apiserver::private;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test(flavor = "multi_thread")]
async fn discovery_is_answered_alike() {
    let Some(server) = private().await else {
        return;
    };
    let twins = Twins::new(&server).await;
    let mut paths: Vec<_> = twins.kinds.iter().map(|kind| kind.root.clone()).collect();
    let groups = twins.kinds.iter().map(|kind| kind.root.rsplit_once('/'));
    paths.extend(groups.flatten().map(|(group, _)| group.to_owned()));
    paths.sort();
    paths.dedup();
    paths.push("/apis".to_owned());
    let mut differences = Vec::new();
    for accept in ["application/json", AGGREGATED] {
        let real = twins.real.with("accept", accept);
        let simulated = twins.simulated.with("accept", accept);
        let roots = ["/api", "/apis"].map(str::to_owned);
        let is_aggregated = accept == AGGREGATED;
        for path in if is_aggregated {
            &roots[..]
        } else {
            &paths[..]
        } {
            let wanted = real.get(path).await.ok();
            let got = simulated.get(path).await.ok();
            assert_eq!(
                got.header("content-type"),
                wanted.header("content-type"),
                "{path}"
            );
            let excess = excess(&got.json(), &wanted.json(), path);
            println!(
                "{:8} {path} {accept}",
                if excess.is_empty() { "same" } else { "DIFFERS" }
            );
            differences.extend(excess);
        }
    }
    assert!(
        differences.is_empty(),
        "only in the simulator's documents:\n{}",
        differences.join("\n")
    );
}

/// The parts of `got` that are not in `whole`, as texts.
fn excess(got: &Value, whole: &Value, place: &str) -> Vec<String> {
    match (got, whole) {
        (Value::Object(got), Value::Object(whole)) => got
            .iter()
            .flat_map(|(key, value)| match whole.get(key) {
                Some(whole) => excess(value, whole, &format!("{place} {key}")),
                None => vec![format!("{place} {key}")],
            })
            .collect(),
        (Value::Array(got), Value::Array(whole)) => got
            .iter()
            .flat_map(|item| {
                let found = whole.iter().map(|whole| excess(item, whole, place));
                found
                    .min_by_key(Vec::len)
                    .unwrap_or(vec![format!("{place} {item}")])
            })
            .collect(),
        _ if got == whole => Vec::new(),
        _ => vec![format!("{place}: {got}, not {whole}")],
    }
}
