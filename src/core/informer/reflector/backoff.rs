//! Waits between retries that double up to a limit, as in client-go's reflector.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::Instant;

/// Limits of the waits of a [`Backoff`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The lower bound of the first wait; jitter makes it up to twice as long. Default is 800 ms.
    pub base: Duration,
    /// The lower bound doubles with each wait, up to this limit. Jitter makes each wait up to twice
    /// as long as its lower bound. Default is 30 s.
    pub cap: Duration,
    /// After this long without a call of [`Backoff::next_delay`], waits start at `base` again.
    /// Default is 2 min.
    pub reset_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(800),
            cap: Duration::from_secs(30),
            reset_after: Duration::from_secs(120),
        }
    }
}

/// Doubling waits with jitter. Each wait is uniform in [d, 2d), where d is the base, twice the
/// base, four times the base, and so on up to the cap.
///
/// Jitter never shortens a wait. So when a thousand proxies lose one API server, their retries are
/// spread over at least the time that each of them waits.
#[derive(Debug)]
pub struct Backoff {
    config: BackoffConfig,
    bound: Duration,
    last_call: Option<Instant>,
    rng: StdRng,
}

impl Backoff {
    /// Creates a backoff that starts at the base. The waits depend only on `config`, on the times
    /// of the calls and on the seed of `rng`.
    pub fn new(config: BackoffConfig, rng: StdRng) -> Self {
        Self {
            bound: config.base,
            last_call: None,
            config,
            rng,
        }
    }

    /// Makes the next wait start at the base, because an attempt was successful.
    pub fn reset(&mut self) {
        self.bound = self.config.base;
    }

    /// Returns how long to wait before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let now = Instant::now();
        let is_stale = |last: Instant| now.duration_since(last) >= self.config.reset_after;
        if self.last_call.replace(now).is_some_and(is_stale) {
            self.bound = self.config.base;
        }
        let bound = self.bound.min(self.config.cap);
        self.bound = bound.saturating_mul(2);
        bound.mul_f64(self.rng.random_range(1.0..2.0))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn backoff(seed: u64) -> Backoff {
        Backoff::new(BackoffConfig::default(), StdRng::seed_from_u64(seed))
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_from_800_ms_and_stop_growing_at_30_s() {
        let bounds = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0];
        for seed in 0..50 {
            let mut backoff = backoff(seed);
            for bound in bounds {
                let delay = backoff.next_delay();
                let seconds = delay.as_secs_f64();
                assert!(
                    (bound..2.0 * bound).contains(&seconds),
                    "seed {seed}: {seconds} s is not in [{bound}, {})",
                    2.0 * bound
                );
                tokio::time::advance(delay).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resets_after_two_minutes_without_a_call() {
        for (pause, bound) in [(119.0, 3.2), (120.0, 0.8)] {
            let mut backoff = backoff(1);
            backoff.next_delay();
            backoff.next_delay();
            tokio::time::advance(Duration::from_secs_f64(pause)).await;
            let seconds = backoff.next_delay().as_secs_f64();
            assert!(
                (bound..2.0 * bound).contains(&seconds),
                "{pause} s: {seconds} s"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn resets_after_a_success() {
        let mut backoff = backoff(1);
        for _ in 0..8 {
            backoff.next_delay();
        }
        backoff.reset();
        let seconds = backoff.next_delay().as_secs_f64();
        assert!((0.8..1.6).contains(&seconds), "{seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn equal_seeds_give_equal_waits_and_other_seeds_do_not() {
        let waits = |seed| {
            let mut backoff = backoff(seed);
            [(); 4].map(|()| backoff.next_delay())
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }
}
