//! Results of reconciles: retries, backoff, panics, concurrency, metrics.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubefan_core::telemetry::Registry;
use serde_json::json;

use super::support::{Calls, Fake, Outcome, controller, map, ms, start};
use crate::controller::{Action, Metrics};
use crate::work_queue;

/// Returns the waits between the reconciles so far.
fn waits(calls: &Calls) -> Vec<Duration> {
    let calls = calls.all();
    let pairs = calls.windows(2);
    pairs.map(|pair| pair[1].began - pair[0].began).collect()
}

#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_is_repeated_after_a_growing_wait() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.script("a", &[Outcome::Error, Outcome::Panic, Outcome::Error]);
    maps.source.add(&map("a", 1)).unwrap();
    start(controller(&maps), &calls);
    calls.until(4).await;
    assert_eq!(waits(&calls), [ms(5), ms(10), ms(20)]);
    // A success forgets the failures.
    calls.script("a", &[Outcome::Error]);
    maps.source.modify(&map("a", 2)).unwrap();
    calls.until(6).await;
    assert_eq!(waits(&calls)[4], ms(5));
}

#[tokio::test(start_paused = true)]
async fn a_failing_object_delays_no_other() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.script("a", &[Outcome::Panic; 12]);
    maps.source.add(&map("a", 1)).unwrap();
    start(controller(&maps), &calls);
    calls.until(10).await;
    let (before, began) = (calls.all().len(), tokio::time::Instant::now());
    maps.source.add(&map("b", 1)).unwrap();
    calls.until(before + 1).await;
    assert_eq!(calls.names().last().unwrap(), "n/b");
    assert!(began.elapsed() < ms(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_requeue_waits_for_the_backoff_or_the_given_time() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    let minute = Action::RequeueAfter(Duration::from_secs(60));
    calls.script(
        "a",
        &[
            Outcome::Is(Action::Requeue),
            Outcome::Is(Action::Requeue),
            Outcome::Is(minute),
            Outcome::Is(Action::Requeue),
        ],
    );
    maps.source.add(&map("a", 1)).unwrap();
    start(controller(&maps), &calls);
    calls.until(5).await;
    // A requeue after a fixed time forgets the earlier failures.
    let minute = Duration::from_secs(60);
    assert_eq!(waits(&calls), [ms(5), ms(10), minute, ms(5)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_desired_state_ends_the_backoff_and_others_do_not() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.script("a", &[Outcome::Error; 30]);
    maps.source.add(&map("a", 1)).unwrap();
    start(controller(&maps), &calls);
    // The backoff is 40 s after fourteen failures.
    calls.until(14).await;
    let mut annotated = map("a", 1);
    annotated["metadata"]["annotations"] = json!({ "seen": "yes" });
    maps.source.modify(&annotated).unwrap();
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(calls.all().len(), 14, "an annotation mends nothing");
    maps.source.modify(&map("a", 2)).unwrap();
    calls.until(15).await;
    assert_eq!(waits(&calls)[13], ms(1_000), "a new spec may");
    // The failures were forgotten, too.
    calls.until(16).await;
    assert_eq!(waits(&calls)[14], ms(5));
}

#[tokio::test(start_paused = true)]
async fn one_object_is_reconciled_at_once_unless_more_are_allowed() {
    for (max, expected) in [(1, 1), (3, 3), (10, 5)] {
        let maps = Fake::<ConfigMap>::new();
        let calls = Calls::default();
        calls.take(ms(100));
        for name in ["a", "b", "c", "d", "e"] {
            maps.source.add(&map(name, 1)).unwrap();
        }
        let controller = controller(&maps).max_concurrent_reconciles(max);
        start(controller, &calls);
        calls.until(1).await;
        tokio::time::sleep(ms(50)).await;
        assert_eq!(calls.running(), expected, "at most {max}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_count_the_results() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry, work_queue::Metrics::new(&registry));
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(ms(100));
    let requeue = Action::RequeueAfter(ms(1));
    calls.script(
        "a",
        &[
            Outcome::Error,
            Outcome::Panic,
            Outcome::Is(Action::Requeue),
            Outcome::Is(requeue),
        ],
    );
    maps.source.add(&map("a", 1)).unwrap();
    let controller = controller(&maps).with_metrics(&metrics);
    start(controller.max_concurrent_reconciles(2), &calls);
    let is = |sample: &str| {
        let (_, text) = registry.render();
        let found = text.lines().any(|line| line == sample);
        assert!(found, "no {sample} in:\n{text}");
    };
    calls.until(1).await;
    is("controller_runtime_active_workers{controller=\"test\"} 1");
    is("controller_runtime_reconcile_panics_total{controller=\"test\"} 0");
    calls.until(5).await;
    tokio::time::sleep(ms(1_000)).await;
    is("controller_runtime_active_workers{controller=\"test\"} 0");
    is("controller_runtime_max_concurrent_reconciles{controller=\"test\"} 2");
    is("controller_runtime_reconcile_panics_total{controller=\"test\"} 1");
    is("controller_runtime_reconcile_errors_total{controller=\"test\"} 2");
    is("controller_runtime_reconcile_time_seconds_count{controller=\"test\"} 5");
    for (result, count) in [
        ("success", 1),
        ("requeue", 1),
        ("requeue_after", 1),
        ("error", 2),
    ] {
        let labels = format!("controller=\"test\",result=\"{result}\"");
        is(&format!(
            "controller_runtime_reconcile_total{{{labels}}} {count}"
        ));
    }
    is("workqueue_adds_total{name=\"test\"} 5");
}
