//! The order of keys with priorities, and ageing.

use std::time::Duration;

use super::support::{Queue, after, config, ms, queue, run_all, take};
use crate::work_queue::{AddOptions, Config, WorkQueue};

fn add(queue: &Queue, key: &'static str, priority: i32) {
    queue.add_with(
        key,
        AddOptions {
            priority,
            ..AddOptions::default()
        },
    );
}

#[tokio::test(start_paused = true)]
async fn keys_with_a_higher_priority_run_first() {
    let queue = queue();
    add(&queue, "low", -100);
    add(&queue, "normal", 0);
    add(&queue, "high", 7);
    add(&queue, "normal too", 0);
    assert_eq!(run_all(&queue), ["high", "normal", "normal too", "low"]);
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_of_a_key_counts() {
    let queue = queue();
    add(&queue, "a", 1);
    add(&queue, "b", 2);
    add(&queue, "a", 3);
    add(&queue, "a", -5);
    let first = take(&queue).unwrap();
    assert_eq!((*first.key(), first.priority()), ("a", 3));
    let second = take(&queue).unwrap();
    assert_eq!((*second.key(), second.priority()), ("b", 2));
}

#[tokio::test(start_paused = true)]
async fn a_priority_counts_until_the_key_runs() {
    let queue = queue();
    add(&queue, "a", 3);
    let work = take(&queue).unwrap();
    add(&queue, "a", -1);
    drop(work);
    assert_eq!(take(&queue).unwrap().priority(), -1);
}

#[tokio::test(start_paused = true)]
async fn a_raised_priority_keeps_the_time_that_the_key_has_waited() {
    let queue = queue();
    add(&queue, "a", 0);
    tokio::time::advance(ms(10)).await;
    add(&queue, "b", 1);
    add(&queue, "c", 1);
    add(&queue, "a", 1);
    assert_eq!(run_all(&queue), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_has_its_priority_when_it_is_due() {
    let queue = queue();
    queue.add_with(
        "high",
        AddOptions {
            priority: 1,
            after: ms(50),
            ..AddOptions::default()
        },
    );
    add(&queue, "normal", 0);
    tokio::time::advance(ms(50)).await;
    assert_eq!(run_all(&queue), ["high", "normal"]);
    queue.add_after("raised", ms(50));
    add(&queue, "raised", 2);
    add(&queue, "high", 1);
    assert_eq!(run_all(&queue), ["raised", "high"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_raises_the_priority() {
    // One point of priority is worth 100 ms.
    for (later_by, order) in [(999, ["new", "old"]), (1_001, ["old", "new"])] {
        let queue = queue();
        add(&queue, "old", 0);
        tokio::time::advance(ms(later_by)).await;
        add(&queue, "new", 10);
        assert_eq!(run_all(&queue), order, "{later_by} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_does_not_starve_below_a_stream_of_keys_with_a_higher_priority() {
    let queue = queue();
    add(&queue, "low", -100);
    let mut waited = 0;
    // One key per 10 ms is added, and one is run, so there is never a pause for the low one.
    add(&queue, "first", 0);
    loop {
        add(&queue, ["even", "odd"][waited % 2], 0);
        if *take(&queue).unwrap().key() == "low" {
            break;
        }
        tokio::time::advance(ms(10)).await;
        waited += 1;
        assert!(waited < 1_010, "starved for {waited} rounds");
    }
    assert!(waited > 990, "ran after {waited} rounds");
}

#[tokio::test(start_paused = true)]
async fn an_ageing_of_zero_makes_priorities_have_no_effect() {
    let of_ageing = |ageing: Duration| WorkQueue::new(Config { ageing, ..config() });
    for (ageing, order) in [
        (Duration::ZERO, ["low", "high"]),
        (Duration::MAX, ["high", "low"]),
    ] {
        let queue = of_ageing(ageing);
        add(&queue, "low", i32::MIN);
        tokio::time::advance(Duration::from_secs(1_000_000)).await;
        add(&queue, "high", i32::MAX);
        assert_eq!(run_all(&queue), order);
    }
}

#[tokio::test(start_paused = true)]
async fn many_keys_come_out_in_order() {
    let queue = WorkQueue::new(Config::default());
    for key in 0..1_000_i32 {
        queue.add_with(
            key,
            AddOptions {
                priority: key % 10,
                ..AddOptions::default()
            },
        );
    }
    let mut keys = Vec::new();
    while !queue.is_empty() {
        let work = queue.get().await.unwrap();
        keys.push((-work.priority(), *work.key()));
    }
    assert_eq!(keys.len(), 1_000);
    assert!(keys.is_sorted());
}

#[tokio::test(start_paused = true)]
async fn keys_in_backoff_are_overtaken_only_until_it_ends() {
    let queue = queue();
    queue.add("failed");
    drop(take(&queue));
    queue.add_rate_limited("failed");
    add(&queue, "low", -1);
    assert_eq!(after(&queue, 0).await, ["low"]);
    add(&queue, "low", -1);
    assert_eq!(after(&queue, 10).await, ["failed", "low"]);
}
