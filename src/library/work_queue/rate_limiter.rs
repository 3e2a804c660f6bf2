//! Rate limiters: how long a key waits before it is retried.

use std::cmp::min;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use kubefan_core::concurrency::TokenBucket;
use tokio::time::Instant;

/// The first wait of [`default_rate_limiter`] for a key.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// The longest wait of [`default_rate_limiter`] for a key.
const MAX_DELAY: Duration = Duration::from_secs(1_000);
/// The interval after which [`default_rate_limiter`] allows one more retry of any key.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The retries that [`default_rate_limiter`] allows at once.
const RETRY_BURST: u32 = 100;

/// Decides how long a key waits before it is retried.
///
/// A queue owns its rate limiter and calls it while the queue's lock is held. So the methods must
/// not block, and must not use the queue.
pub trait RateLimiter<K>: Send + 'static {
    /// Counts a failure of `key`, and returns how long the key has to wait from `now` on.
    fn when(&mut self, key: &K, now: Instant) -> Duration;

    /// Forgets the failures of `key`, because it has succeeded, or is not retried any more.
    fn forget(&mut self, key: &K);

    /// Returns the number of failures of `key` since it was last forgotten; 0 if the limiter does
    /// not count failures.
    fn num_requeues(&self, key: &K) -> u32;
}

/// A wait per key that doubles with each failure.
#[derive(Clone, Debug)]
pub struct ItemExponentialFailure<K> {
    base: Duration,
    max: Duration,
    failures: HashMap<K, u32>,
}

/// A short wait for the first failures of a key, and a long one after them.
#[derive(Clone, Debug)]
pub struct ItemFastSlow<K> {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
    failures: HashMap<K, u32>,
}

/// A limit for the retries of all keys together: a bucket of tokens. Each retry takes one token.
///
/// It does not count failures per key.
#[derive(Clone, Debug)]
pub struct Bucket(TokenBucket);

/// The longest wait of several rate limiters, and the highest of their counts.
pub struct MaxOf<K> {
    limiters: Vec<Box<dyn RateLimiter<K>>>,
}

/// The waits of another rate limiter, limited to a maximum.
#[derive(Clone, Debug)]
pub struct MaxWait<L> {
    limiter: L,
    max: Duration,
}

/// Returns the default rate limiter of a queue: the longer wait of [`ItemExponentialFailure`] (5 ms
/// to 1,000 s) and [`Bucket`] (one retry per 100 ms, 100 at once).
pub fn default_rate_limiter<K>() -> MaxOf<K>
where
    K: Clone + Eq + Hash + Send + 'static,
{
    MaxOf::new([
        Box::new(ItemExponentialFailure::new(BASE_DELAY, MAX_DELAY)) as Box<dyn RateLimiter<K>>,
        Box::new(Bucket::new(RETRY_INTERVAL, RETRY_BURST)),
    ])
}

// === impl ItemExponentialFailure ===

impl<K> ItemExponentialFailure<K> {
    /// Creates a limiter that makes a key wait for `base` after its first failure, twice as long
    /// after each further failure, and at most `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for ItemExponentialFailure<K> {
    fn when(&mut self, key: &K, _now: Instant) -> Duration {
        let failures = count(&mut self.failures, key);
        doubled(self.base, failures - 1, self.max)
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// Returns `base`, doubled `times`, and at most `max`.
fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    let nanoseconds = 1_u128
        .checked_shl(times)
        .and_then(|factor| base.as_nanos().checked_mul(factor))
        .filter(|nanoseconds| *nanoseconds <= max.as_nanos());
    match nanoseconds {
        Some(nanoseconds) => Duration::from_nanos_u128(nanoseconds),
        None if base.is_zero() => Duration::ZERO,
        None => max,
    }
}

// === impl ItemFastSlow ===

impl<K> ItemFastSlow<K> {
    /// Creates a limiter that makes a key wait for `fast` after each of its first `fast_attempts`
    /// failures, and for `slow` after each further failure.
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self {
            fast,
            slow,
            fast_attempts,
            failures: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> RateLimiter<K> for ItemFastSlow<K> {
    fn when(&mut self, key: &K, _now: Instant) -> Duration {
        if count(&mut self.failures, key) <= self.fast_attempts {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// Counts one more failure of `key`, and returns the new number.
fn count<K: Clone + Eq + Hash>(failures: &mut HashMap<K, u32>, key: &K) -> u32 {
    if let Some(failures) = failures.get_mut(key) {
        *failures = failures.saturating_add(1);
        return *failures;
    }
    failures.insert(key.clone(), 1);
    1
}

// === impl Bucket ===

impl Bucket {
    /// Creates a bucket with `burst` tokens, which is also the maximum. It gets one
    /// more per `interval`.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self(TokenBucket::new(interval, burst))
    }
}

impl<K> RateLimiter<K> for Bucket {
    fn when(&mut self, _key: &K, now: Instant) -> Duration {
        self.0.take(now);
        self.0.debt(now)
    }

    fn forget(&mut self, _key: &K) {}

    fn num_requeues(&self, _key: &K) -> u32 {
        0
    }
}

// === impl MaxOf ===

impl<K> MaxOf<K> {
    /// Creates a limiter that asks all of `limiters`, each time.
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<K>>>) -> Self {
        Self {
            limiters: limiters.into_iter().collect(),
        }
    }
}

impl<K: 'static> RateLimiter<K> for MaxOf<K> {
    fn when(&mut self, key: &K, now: Instant) -> Duration {
        let limiters = self.limiters.iter_mut();
        let waits = limiters.map(|limiter| limiter.when(key, now));
        waits.max().unwrap_or_default()
    }

    fn forget(&mut self, key: &K) {
        for limiter in &mut self.limiters {
            limiter.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        let limiters = self.limiters.iter();
        let counts = limiters.map(|limiter| limiter.num_requeues(key));
        counts.max().unwrap_or_default()
    }
}

impl<K> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf")
            .field("limiters", &self.limiters.len())
            .finish()
    }
}

// === impl MaxWait ===

impl<L> MaxWait<L> {
    /// Creates a limiter with the waits of `limiter`, but at most `max`.
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for MaxWait<L> {
    fn when(&mut self, key: &K, now: Instant) -> Duration {
        min(self.limiter.when(key, now), self.max)
    }

    fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.limiter.num_requeues(key)
    }
}

#[cfg(test)]
mod tests;
