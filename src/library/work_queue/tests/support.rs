//! Queues of texts, and functions that take keys from them.

use std::time::Duration;

use futures_util::FutureExt;

use crate::work_queue::{Config, ItemExponentialFailure, Work, WorkQueue};

pub(super) type Queue = WorkQueue<&'static str>;

pub(super) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a queue with a backoff of 10 ms after the first failure, which doubles up to one second.
pub(super) fn queue() -> Queue {
    WorkQueue::new(config())
}

pub(super) fn config() -> Config<&'static str> {
    Config {
        rate_limiter: Box::new(ItemExponentialFailure::new(ms(10), ms(1_000))),
        ..Config::default()
    }
}

/// Takes the next key if one is ready.
pub(super) fn take(queue: &Queue) -> Option<Work<&'static str>> {
    queue.get().now_or_never().flatten()
}

/// Takes the keys that are ready and ends their runs. Returns the keys in the order of their runs.
pub(super) fn run_all(queue: &Queue) -> Vec<&'static str> {
    std::iter::from_fn(|| take(queue).map(|work| *work.key())).collect()
}

/// Advances the clock, runs the keys that are ready then, and returns them.
pub(super) async fn after(queue: &Queue, milliseconds: u64) -> Vec<&'static str> {
    tokio::time::advance(ms(milliseconds)).await;
    run_all(queue)
}
