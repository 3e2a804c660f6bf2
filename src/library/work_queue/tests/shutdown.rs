//! Shutdown with and without draining.

use futures_util::FutureExt;

use super::support::{after, ms, queue, run_all, take};

#[test]
fn after_a_shutdown_workers_get_what_is_ready_and_then_the_end() {
    let queue = queue();
    queue.add("a");
    assert!(!queue.is_shutting_down());
    queue.shut_down();
    assert!(queue.is_shutting_down());
    queue.add("added after the shutdown");
    assert_eq!(run_all(&queue), ["a"]);
    assert!(queue.get().now_or_never().unwrap().is_none());
    assert!(queue.is_empty());
}

#[tokio::test]
async fn a_shutdown_wakes_all_waiting_workers() {
    let queue = queue();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
}

#[test]
fn a_shutdown_does_not_wait_for_running_keys() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.shut_down();
    assert!(queue.get().now_or_never().unwrap().is_none());
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drops_keys_that_are_not_due() {
    let queue = queue();
    queue.add_after("due", ms(5));
    queue.add_after("delayed", ms(50));
    queue.add_rate_limited("in backoff");
    queue.add("runs");
    let work = take(&queue).unwrap();
    queue.add_rate_limited("runs");
    tokio::time::advance(ms(5)).await;
    queue.shut_down();
    drop(work);
    assert_eq!(after(&queue, 10_000).await, ["due"]);
    assert!(queue.get().now_or_never().unwrap().is_none());
}

#[tokio::test]
async fn a_drain_waits_for_running_and_ready_keys() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add("c");
    let first = take(&queue).unwrap();
    let second = take(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!((&mut drain).now_or_never().is_none());
    drop(first);
    drop(second);
    assert!((&mut drain).now_or_never().is_none(), "c is ready");
    let third = take(&queue).unwrap();
    assert!((&mut drain).now_or_never().is_none(), "c runs");
    drop(third);
    drain.await;
    assert!(queue.get().now_or_never().unwrap().is_none());
}

#[tokio::test]
async fn a_drain_waits_for_a_key_that_was_added_while_it_ran() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add("a");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!((&mut drain).now_or_never().is_none());
    let mut next = Box::pin(queue.get());
    assert!(
        (&mut next).now_or_never().is_none(),
        "the key is ready when its run is done, and no earlier"
    );
    drop(work);
    let again = next.await.unwrap();
    assert!((&mut drain).now_or_never().is_none());
    let mut end = Box::pin(queue.get());
    assert!((&mut end).now_or_never().is_none());
    drop(again);
    drain.await;
    assert!(end.await.is_none());
    assert!(queue.get().now_or_never().unwrap().is_none());
}

#[test]
fn a_drain_of_an_idle_queue_ends_at_once() {
    let queue = queue();
    queue.add_after("a", ms(1_000));
    assert!(queue.shut_down_with_drain().now_or_never().is_some());
    assert!(queue.shut_down_with_drain().now_or_never().is_some());
}

#[test]
fn a_shutdown_ends_a_drain() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!((&mut drain).now_or_never().is_none());
    queue.shut_down();
    assert!((&mut drain).now_or_never().is_some());
    drop(work);
}

#[test]
fn a_cancelled_drain_leaves_the_queue_shut_down() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    assert!(queue.shut_down_with_drain().now_or_never().is_none());
    assert!(queue.is_shutting_down());
    drop(work);
    queue.add("b");
    assert!(queue.get().now_or_never().unwrap().is_none());
}
