//! Keys that run after a delay, and the timer that waiting workers share.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::support::{after, ms, queue, run_all, take};

#[tokio::test(start_paused = true)]
async fn a_delayed_key_runs_once_after_its_delay() {
    let queue = queue();
    queue.add_after("a", ms(50));
    assert!(queue.is_empty());
    assert!(after(&queue, 49).await.is_empty());
    assert_eq!(after(&queue, 1).await, ["a"]);
    assert!(after(&queue, 10_000).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_several_delays_of_a_key_the_shortest_counts() {
    let queue = queue();
    queue.add_after("a", ms(50));
    queue.add_after("a", ms(70));
    assert_eq!(after(&queue, 50).await, ["a"]);
    assert!(after(&queue, 20).await.is_empty());
    queue.add_after("a", ms(50));
    queue.add_after("a", ms(30));
    assert_eq!(after(&queue, 30).await, ["a"]);
    assert!(after(&queue, 20).await.is_empty());
    queue.add_after("a", ms(50));
    queue.add("a");
    assert_eq!(run_all(&queue), ["a"]);
    assert!(after(&queue, 50).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_run_in_the_order_in_which_they_are_due() {
    let queue = queue();
    queue.add_after("a", ms(1_000));
    queue.add_after("b", ms(500));
    queue.add_after("c", ms(250));
    queue.add("d");
    assert_eq!(after(&queue, 2_000).await, ["d", "c", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_shorter_delay_runs_before_one_that_was_added_earlier() {
    let queue = queue();
    queue.add_after("a", ms(1_000));
    queue.add_after("b", ms(50));
    assert_eq!(after(&queue, 60).await, ["b"]);
    queue.add_after("c", ms(2_000));
    assert_eq!(after(&queue, 940).await, ["a"]);
    assert_eq!(after(&queue, 1_060).await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_while_the_key_runs_makes_it_run_again() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add_after("a", ms(50));
    assert!(after(&queue, 60).await.is_empty());
    drop(work);
    assert_eq!(run_all(&queue), ["a"]);
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add_after("a", ms(50));
    drop(work);
    assert!(after(&queue, 49).await.is_empty(), "the delay is not over");
    assert_eq!(after(&queue, 1).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_is_no_error() {
    let queue = queue();
    queue.add_after("a", Duration::MAX);
    queue.add_after("b", ms(1));
    let started = Instant::now();
    assert_eq!(*queue.get().await.unwrap().key(), "b");
    assert_eq!(started.elapsed(), ms(1));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_gets_a_key_when_it_is_due() {
    let queue = queue();
    queue.add_after("a", ms(3_000));
    let started = Instant::now();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { (*queue.get().await.unwrap().key(), started.elapsed()) }
    });
    tokio::time::sleep(ms(1_000)).await;
    // The worker waits for the third second already.
    queue.add_after("b", ms(500));
    assert_eq!(worker.await.unwrap(), ("b", ms(1_500)));
    assert_eq!(*queue.get().await.unwrap().key(), "a");
    assert_eq!(started.elapsed(), ms(3_000));
}

#[tokio::test(start_paused = true)]
async fn several_waiting_workers_get_the_keys_that_are_due_together() {
    let queue = queue();
    let started = Instant::now();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let work = queue.get().await.unwrap();
                let got = (*work.key(), started.elapsed());
                // The run does not end, so that each worker gets one key.
                std::mem::forget(work);
                got
            })
        })
        .collect();
    tokio::time::sleep(ms(1)).await;
    for key in ["a", "b", "c"] {
        queue.add_after(key, ms(99));
    }
    let mut got = Vec::new();
    for worker in workers {
        got.push(worker.await.unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [("a", ms(100)), ("b", ms(100)), ("c", ms(100))]);
}

#[tokio::test(start_paused = true)]
async fn the_timer_passes_to_another_worker_when_its_worker_leaves() {
    // The first worker leaves because it is cancelled, and then because it gets another key.
    for is_cancelled in [true, false] {
        let queue = queue();
        queue.add_after("a", ms(100));
        let mut first = Box::pin(queue.get());
        assert!((&mut first).now_or_never().is_none());
        let second = tokio::spawn({
            let queue = queue.clone();
            async move { *queue.get().await.unwrap().key() }
        });
        tokio::task::yield_now().await;
        if is_cancelled {
            drop(first)
        } else {
            queue.add("b");
            assert_eq!(*first.await.unwrap().key(), "b");
        }
        let started = Instant::now();
        assert_eq!(second.await.unwrap(), "a");
        assert_eq!(started.elapsed(), ms(100));
    }
}
