//! The settings of a queue, and the options of one request to run a key.

use std::hash::Hash;
use std::time::Duration;

use super::metrics::QueueMetrics;
use super::rate_limiter::{RateLimiter, default_rate_limiter};

/// Settings of one [`WorkQueue`](super::WorkQueue).
pub struct Config<K> {
    /// How long a key is in backoff after each failure. Default is [`default_rate_limiter`].
    pub rate_limiter: Box<dyn RateLimiter<K>>,
    /// The time after which the priority of a waiting key has risen by one. A key therefore waits
    /// for keys that were added after it at most this long per point of priority. With zero,
    /// priorities have no effect. Default is 100 ms: a key of priority −100 is equal to a key of
    /// priority 0 that was added ten seconds later.
    pub ageing: Duration,
    /// The metrics of the queue, from [`Metrics::queue`](super::Metrics::queue). Default is `None`.
    pub metrics: Option<QueueMetrics>,
}

/// How a key is added by [`WorkQueue::add_with`](super::WorkQueue::add_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Keys with a higher priority run first, except that waiting raises the priority
    /// ([`Config::ageing`]). If a key is added more than once before it runs, the highest priority
    /// counts. Default is 0.
    pub priority: i32,
    /// The key runs after this time at the earliest. Default is zero.
    pub after: Duration,
    /// True to count a failure of the key and put it in backoff, as
    /// [`WorkQueue::add_rate_limited`](super::WorkQueue::add_rate_limited) does. Default is false.
    pub is_rate_limited: bool,
}

impl<K: Clone + Eq + Hash + Send + 'static> Default for Config<K> {
    fn default() -> Self {
        Self {
            rate_limiter: Box::new(default_rate_limiter()),
            ageing: Duration::from_millis(100),
            metrics: None,
        }
    }
}

debug_fields!([K] Config<K>, |it| ageing: it.ageing, metrics: it.metrics);
