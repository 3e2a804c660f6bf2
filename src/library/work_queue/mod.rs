//! A queue of keys to work on, as controllers use it.
//!
//! Event handlers add the keys of objects that changed. Workers take keys, and bring the world into
//! the state that the objects describe. Keys are values such as
//! [`ObjectKey`](kubefan_core::api::ObjectKey), or a pair of a namespace and a name. The queue does
//! not hold objects, so a worker reads the newest one.
//!
//! ```
//! use kubefan::work_queue::{Config, WorkQueue};
//!
//! # async fn run() {
//! let queue = WorkQueue::new(Config::default());
//! queue.add("default/web".to_owned());
//! # let reconcile = |_: &String| async { Ok::<(), ()>(()) };
//! # queue.shut_down();
//! while let Some(work) = queue.get().await {
//!     match reconcile(work.key()).await {
//!         Ok(()) => queue.forget(work.key()),
//!         Err(_) => queue.add_rate_limited(work.key().clone()),
//!     }
//! } // the run of the key ends here, when `work` is dropped
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run());
//! ```
//!
//! # Guarantees
//!
//! - A key never runs twice at once, however many workers there are.
//! - Each request is answered by a run that begins after it. Several requests for a key before its
//!   run begins are one request, with the earliest of their times and the highest of their
//!   priorities. A key that is added during its run, runs again afterwards. The exception is a
//!   shutdown, which drops the keys that are not due.
//! - Keys of equal priority run in the order of the times when they were due.
//! - No key starves: see below.
//!
//! # Priorities
//!
//! A key with a higher priority runs first. While a key waits, its priority rises by one per
//! [`Config::ageing`]. So a key of priority `p` waits for keys of priority `q > p` only if they
//! were due at most `(q - p) × ageing` after it. The informers of a controller typically add the
//! objects of their first list with a priority below zero, so that changes come first.
//!
//! # Backoff
//!
//! [`WorkQueue::add_rate_limited`] counts a failure of a key, and puts the key in *backoff* for the
//! time that the [`RateLimiter`] returns. Until the backoff ends, no request makes the key run.
//! When the backoff ends, the key runs once. Adding a key never changes its number of failures, and
//! `add_rate_limited` counts one failure per run. So neither the backoff nor the count depends on
//! how many events an object has while it fails. client-go differs in both: there, an event makes a
//! key in backoff run at once, and the next failure of the key makes the backoff longer.
//!
//! [`WorkQueue::forget`] resets the count and ends the backoff. A worker calls it after a success.
//! An event handler calls it before `add` for a change that may end the failure, such as a new
//! `spec`: then the key runs at once, or when its present run is done, even if this run fails.
//!
//! # Time
//!
//! Delays use tokio's clock, so tests can pause it. A queue has no task: the workers that wait in
//! [`WorkQueue::get`] also wait for the next key that is due.

mod metrics;
mod options;
mod queue;
mod rate_limiter;
mod schedule;
mod shared;
#[cfg(test)]
mod tests;
mod work;

pub use metrics::{Metrics, QueueMetrics};
pub use options::{AddOptions, Config};
pub use queue::WorkQueue;
pub use rate_limiter::{
    Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, MaxWait, RateLimiter, default_rate_limiter,
};
pub(crate) use shared::until_some;
pub use work::Work;
