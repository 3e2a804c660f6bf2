//! The metrics of a queue, as a scrape shows them.

use kubefan_core::telemetry::Registry;

use super::support::{Queue, config, ms, run_all, take};
use crate::work_queue::{AddOptions, Config, Metrics, WorkQueue};

fn queue(metrics: &Metrics, name: &str) -> Queue {
    WorkQueue::new(Config {
        metrics: Some(metrics.queue(name)),
        ..config()
    })
}

/// Returns the sample `workqueue_METRIC` of the queue `name`.
fn value(registry: &Registry, metric: &str, name: &str) -> f64 {
    let (_, text) = registry.render();
    let sample = format!("workqueue_{metric}{{name=\"{name}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&sample));
    let line = line.unwrap_or_else(|| panic!("no {sample} in:\n{text}"));
    line.parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn a_scrape_shows_the_keys_the_waits_and_the_runs() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let queue = queue(&metrics, "pods");
    let is = |metric: &str, expected: f64| {
        assert_eq!(value(&registry, metric, "pods"), expected, "{metric}");
    };
    is("depth", 0.0);
    is("adds_total", 0.0);
    queue.add("a");
    queue.add("a");
    queue.add("b");
    is("depth", 2.0);
    is("adds_total", 2.0);
    tokio::time::advance(ms(50)).await;
    let a = take(&queue).unwrap();
    is("depth", 1.0);
    is("queue_duration_seconds_sum", 0.05);
    is("queue_duration_seconds_count", 1.0);
    tokio::time::advance(ms(25)).await;
    let b = take(&queue).unwrap();
    tokio::time::advance(ms(25)).await;
    is("unfinished_work_seconds", 0.075);
    is("longest_running_processor_seconds", 0.05);
    // This request counts when the key becomes ready, after its run.
    queue.add("a");
    is("adds_total", 2.0);
    drop(a);
    is("adds_total", 3.0);
    is("work_duration_seconds_count", 1.0);
    is("work_duration_seconds_sum", 0.05);
    is("unfinished_work_seconds", 0.025);
    is("longest_running_processor_seconds", 0.025);
    drop(b);
    assert_eq!(run_all(&queue), ["a"]);
    is("work_duration_seconds_count", 3.0);
    is("queue_duration_seconds_sum", 0.125);
    is("unfinished_work_seconds", 0.0);
    is("longest_running_processor_seconds", 0.0);
    is("depth", 0.0);
    is("retries_total", 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_counts_when_it_is_due() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let queue = queue(&metrics, "pods");
    let is = |metric: &str, expected: f64| {
        assert_eq!(value(&registry, metric, "pods"), expected, "{metric}");
    };
    queue.add_after("a", ms(10));
    queue.add_rate_limited("b");
    is("retries_total", 2.0);
    is("adds_total", 0.0);
    is("depth", 0.0);
    tokio::time::advance(ms(15)).await;
    is("depth", 2.0);
    is("adds_total", 2.0);
    assert_eq!(run_all(&queue), ["a", "b"]);
    is("queue_duration_seconds_sum", 0.01);
    // A raised priority is no second request.
    queue.add_after("a", ms(10));
    for priority in [0, 1] {
        queue.add_with(
            "a",
            AddOptions {
                priority,
                ..AddOptions::default()
            },
        );
    }
    is("adds_total", 3.0);
    queue.shut_down();
    queue.add_after("c", ms(10));
    is("retries_total", 3.0);
}

#[test]
fn queues_of_one_name_are_added_up_and_dropped_queues_disappear() {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let queues = [queue(&metrics, "pods"), queue(&metrics, "pods")];
    for queue in &queues {
        queue.add("a");
    }
    assert_eq!(value(&registry, "depth", "pods"), 2.0);
    drop(queues);
    let (_, text) = registry.render();
    assert!(!text.contains("workqueue_depth"), "{text}");
    assert!(text.contains("workqueue_adds_total{name=\"pods\"} 2"));
}
