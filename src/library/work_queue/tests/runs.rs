//! When keys run, and that no key runs twice at once.

use std::sync::Arc;

use futures_util::FutureExt;

use super::support::{queue, run_all, take};
use crate::work_queue::{Config, WorkQueue};

#[test]
fn keys_run_in_the_order_in_which_they_were_added() {
    let queue = queue();
    for key in ["c", "a", "b"] {
        queue.add(key);
    }
    assert_eq!(run_all(&queue), ["c", "a", "b"]);
    assert!(queue.is_empty());
}

#[test]
fn the_length_counts_each_ready_key_once() {
    let queue = queue();
    assert!(queue.is_empty());
    queue.add("a");
    assert_eq!(queue.len(), 1);
    queue.add("b");
    assert_eq!(queue.len(), 2);
    queue.add("a");
    assert_eq!(queue.len(), 2);
    let work = take(&queue);
    assert_eq!(queue.len(), 1);
    queue.add("a");
    assert_eq!(queue.len(), 1, "a key that runs is not ready");
    drop(work);
    assert_eq!(queue.len(), 2);
}

#[test]
fn a_key_that_is_added_twice_runs_once() {
    let queue = queue();
    queue.add("a");
    queue.add("a");
    assert_eq!(run_all(&queue), ["a"]);
}

#[test]
fn a_key_that_is_added_while_it_runs_runs_again_afterwards() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    assert!(take(&queue).is_none(), "not twice at once");
    work.done();
    assert_eq!(run_all(&queue), ["a"], "once for both");
}

#[test]
fn a_key_that_runs_does_not_delay_others() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add("a");
    queue.add("b");
    assert_eq!(run_all(&queue), ["b"]);
    drop(work);
    assert_eq!(run_all(&queue), ["a"]);
}

#[tokio::test]
async fn a_worker_waits_until_another_one_has_run_the_key() {
    let queue = queue();
    queue.add("a");
    let work = take(&queue).unwrap();
    queue.add("a");
    let mut other = Box::pin(queue.get());
    assert!((&mut other).now_or_never().is_none());
    drop(work);
    assert_eq!(*other.await.unwrap().key(), "a");
}

#[tokio::test]
async fn a_waiting_worker_is_woken_by_an_added_key() {
    let queue = queue();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { *queue.get().await.unwrap().key() }
    });
    tokio::task::yield_now().await;
    queue.add("a");
    assert_eq!(worker.await.unwrap(), "a");
}

#[test]
fn a_cancelled_worker_passes_its_wake_on() {
    let queue = queue();
    let mut first = Box::pin(queue.get());
    let mut second = Box::pin(queue.get());
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    // The first worker is woken, and is cancelled before it takes the key.
    queue.add("a");
    drop(first);
    assert_eq!(*second.now_or_never().flatten().unwrap().key(), "a");
}

#[tokio::test]
async fn a_panic_of_a_worker_ends_the_run() {
    let queue = queue();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _work = queue.get().await;
            panic!("a planned panic");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    queue.add("a");
    assert_eq!(run_all(&queue), ["a"]);
}

#[test]
fn a_key_is_freed_after_its_run() {
    let queue = WorkQueue::new(Config::default());
    let key = Arc::new("a".to_owned());
    queue.add(Arc::clone(&key));
    queue.add(Arc::clone(&key));
    let work = queue.get().now_or_never().flatten().unwrap();
    assert!(Arc::ptr_eq(work.key(), &key));
    drop(work);
    assert_eq!(Arc::strong_count(&key), 1);
}
