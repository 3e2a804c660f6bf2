//! The backoff of one key: adding the key neither ends its backoff early, nor makes it longer.

use std::time::Duration;

use super::support::{Queue, after, ms, queue, run_all, take};
use crate::work_queue::AddOptions;

/// Runs the ready key `a`, and lets it fail.
fn fail(queue: &Queue) {
    let work = take(queue).expect("a ready key");
    assert_eq!(*work.key(), "a");
    queue.add_rate_limited("a");
}

#[tokio::test(start_paused = true)]
async fn each_failure_doubles_the_backoff_until_the_key_is_forgotten() {
    let queue = queue();
    queue.add("a");
    for (failures, backoff) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        fail(&queue);
        assert_eq!(queue.num_requeues(&"a"), failures);
        tokio::time::advance(ms(backoff - 1)).await;
        assert!(queue.is_empty(), "{failures} failures");
        tokio::time::advance(ms(1)).await;
        assert_eq!(queue.len(), 1, "{failures} failures");
    }
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    fail(&queue);
    assert_eq!(after(&queue, 10).await, ["a"]);
    assert_eq!(queue.num_requeues(&"b"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_backoff_of_one_key_does_not_delay_others() {
    let queue = queue();
    queue.add("a");
    fail(&queue);
    queue.add("b");
    assert_eq!(run_all(&queue), ["b"]);
    assert_eq!(after(&queue, 10).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn adding_a_key_does_not_end_its_backoff() {
    let adds: [fn(&Queue); 4] = [
        |queue| queue.add("a"),
        |queue| queue.add_after("a", ms(3)),
        |queue| {
            queue.add_with(
                "a",
                AddOptions {
                    priority: 100,
                    ..AddOptions::default()
                },
            )
        },
        |queue| queue.add_rate_limited("a"),
    ];
    for (number, add) in adds.iter().enumerate() {
        let queue = queue();
        queue.add("a");
        fail(&queue);
        add(&queue);
        assert!(after(&queue, 5).await.is_empty(), "add {number}");
        add(&queue);
        assert!(after(&queue, 4).await.is_empty(), "add {number}");
        assert_eq!(after(&queue, 1).await, ["a"], "add {number}");
        assert!(after(&queue, 10_000).await.is_empty(), "once: add {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_while_the_key_runs_does_not_end_the_backoff_that_follows() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add("a");
    queue.add_rate_limited("a");
    drop(work);
    assert!(after(&queue, 9).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
    assert!(after(&queue, 10_000).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn adding_a_key_does_not_raise_its_failures() {
    let queue = queue();
    queue.add("a");
    for (failures, backoff) in [(1, 10), (2, 20), (3, 40)] {
        fail(&queue);
        for _ in 0..10 {
            queue.add("a");
            queue.add_after("a", ms(1));
            queue.add_rate_limited("a");
        }
        assert_eq!(queue.num_requeues(&"a"), failures);
        tokio::time::advance(ms(backoff)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_for_a_key_that_is_ready_but_has_not_run() {
    let queue = queue();
    queue.add("a");
    queue.add_rate_limited("a");
    queue.add_rate_limited("a");
    assert_eq!(queue.num_requeues(&"a"), 1);
    assert!(after(&queue, 9).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_forgotten_in_backoff_is_ready_at_once() {
    let queue = queue();
    queue.add("a");
    fail(&queue);
    queue.forget(&"a");
    assert_eq!(run_all(&queue), ["a"]);
    assert!(after(&queue, 10_000).await.is_empty());
    // The order of a handler's `forget` and `add` does not matter.
    queue.add("a");
    fail(&queue);
    queue.add("a");
    queue.forget(&"a");
    assert_eq!(run_all(&queue), ["a"]);
    assert!(after(&queue, 10_000).await.is_empty());
    // A delay is no backoff.
    queue.add_after("a", ms(20));
    queue.forget(&"a");
    assert!(after(&queue, 19).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_forgotten_while_it_runs_has_no_backoff_afterwards() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add_rate_limited("a");
    queue.forget(&"a");
    assert!(take(&queue).is_none());
    drop(work);
    assert_eq!(run_all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_requested_after_a_key_was_forgotten_does_not_wait_for_an_older_failure() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.forget(&"a");
    queue.add("a");
    queue.add_rate_limited("a");
    drop(work);
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(run_all(&queue), ["a"]);
    // Without such a request, the failure counts.
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.forget(&"a");
    queue.add_rate_limited("a");
    drop(work);
    assert_eq!(queue.num_requeues(&"a"), 1);
    assert!(after(&queue, 9).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_longer_than_the_backoff_remains() {
    let queue = queue();
    let delayed = |after: Duration| AddOptions {
        after,
        is_rate_limited: true,
        ..AddOptions::default()
    };
    queue.add_with("a", delayed(ms(50)));
    assert!(after(&queue, 49).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
    queue.add_with("b", delayed(ms(5)));
    assert!(after(&queue, 9).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["b"]);
}
