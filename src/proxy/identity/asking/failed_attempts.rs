//! Counts the failed attempts of each source address, or each user.
//!
//! An address that fails too often gets 429 for credentials that kubefan has not seen accepted:
//! kubefan sends neither a review nor a forwarded request for them. Tokens that were accepted are
//! not limited, because a load balancer may give all clients the same address.
//!
//! A request counts once: when the API server refuses its token in a review, or else when the API
//! server refuses the forwarded request.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An address may have the failures of this many seconds at once.
const BURST_SECONDS: f64 = 10.0;
/// The number of addresses or users that are remembered, in each of two generations.
const ADDRESSES: usize = 8_192;

/// Where a request comes from: an IPv4 address, or the network (/64) of an IPv6 address, because
/// one host may have all addresses of such a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Source(IpAddr);

/// The failed attempts of the recent past, by their source.
pub(in crate::identity) struct FailedAttempts<K> {
    /// How many attempts of a source may fail per second, on average.
    per_second: f64,
    budgets: Mutex<Budgets<K>>,
}

/// The budgets that are not full. If there are too many, the older half is forgotten.
struct Budgets<K> {
    young: HashMap<K, Budget>,
    old: HashMap<K, Budget>,
}

/// How many attempts may still fail, at a moment. The number grows with time.
#[derive(Clone, Copy)]
struct Budget {
    left: f64,
    at: Instant,
}

impl Source {
    pub(in crate::identity) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

impl<K: Copy + Eq + Hash> FailedAttempts<K> {
    pub(in crate::identity) fn new(per_second: NonZeroU32) -> Self {
        Self {
            per_second: f64::from(per_second.get()),
            budgets: Mutex::new(Budgets {
                young: HashMap::new(),
                old: HashMap::new(),
            }),
        }
    }

    /// Counts a failed attempt of `source`.
    pub(in crate::identity) fn count(&self, source: K) {
        let now = Instant::now();
        let mut budgets = self.budgets.lock();
        let left = budgets.left(source, now, self.per_second) - 1.0;
        if budgets.young.len() >= ADDRESSES && !budgets.young.contains_key(&source) {
            budgets.old = std::mem::take(&mut budgets.young);
        }
        // An address that continues to fail waits for at most one more second.
        let left = left.max(-self.per_second);
        budgets.young.insert(source, Budget { left, at: now });
    }

    /// Forgets the failed attempts of `source`, because the API server has also refused good
    /// credentials.
    pub(in crate::identity) fn forgive(&self, source: K) {
        let mut budgets = self.budgets.lock();
        budgets.young.remove(&source);
        budgets.old.remove(&source);
    }

    /// Returns true if `source` has failed too often, and its next attempt must wait.
    pub(in crate::identity) fn is_exhausted(&self, source: K) -> bool {
        self.budgets
            .lock()
            .left(source, Instant::now(), self.per_second)
            < 1.0
    }
}

impl<K: Eq + Hash> Budgets<K> {
    fn left(&self, source: K, now: Instant, per_second: f64) -> f64 {
        let burst = per_second * BURST_SECONDS;
        let budget = self.young.get(&source).or_else(|| self.old.get(&source));
        budget.map_or(burst, |budget| {
            let elapsed = now.saturating_duration_since(budget.at).as_secs_f64();
            (budget.left + elapsed * per_second).min(burst)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn attempts() -> FailedAttempts<Source> {
        FailedAttempts::new(NonZeroU32::new(100).expect("100 is not 0"))
    }

    fn source(address: &str) -> Source {
        Source::of(address.parse().expect("an address"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_fails_too_often_waits() {
        let attempts = attempts();
        let (bad, good) = (source("192.0.2.1"), source("192.0.2.2"));
        for _ in 0..1_000 {
            assert!(!attempts.is_exhausted(bad));
            attempts.count(bad);
        }
        assert!(attempts.is_exhausted(bad) && !attempts.is_exhausted(good));
        advance(Duration::from_millis(11)).await;
        assert!(!attempts.is_exhausted(bad));
        for _ in 0..10_000 {
            attempts.count(bad);
        }
        advance(Duration::from_secs(1)).await;
        assert!(attempts.is_exhausted(bad));
        advance(Duration::from_millis(20)).await;
        assert!(!attempts.is_exhausted(bad));
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgiven_address_may_fail_again_as_often() {
        let attempts = attempts();
        let (bad, other) = (source("192.0.2.1"), source("192.0.2.2"));
        for _ in 0..10_000 {
            attempts.count(bad);
            attempts.count(other);
        }
        attempts.forgive(bad);
        assert!(attempts.is_exhausted(other));
        for _ in 0..1_000 {
            assert!(!attempts.is_exhausted(bad));
            attempts.count(bad);
        }
        assert!(attempts.is_exhausted(bad));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_a_setting() {
        let attempts = FailedAttempts::new(NonZeroU32::MIN);
        let bad = source("192.0.2.1");
        for _ in 0..10 {
            assert!(!attempts.is_exhausted(bad));
            attempts.count(bad);
        }
        assert!(attempts.is_exhausted(bad));
        advance(Duration::from_millis(900)).await;
        assert!(attempts.is_exhausted(bad));
        advance(Duration::from_millis(200)).await;
        assert!(!attempts.is_exhausted(bad));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_addresses_is_bounded() {
        let attempts = attempts();
        for number in 0..100_000_u32 {
            attempts.count(Source::of(IpAddr::from(number.to_be_bytes())));
        }
        let budgets = attempts.budgets.lock();
        assert!(budgets.young.len() + budgets.old.len() <= 2 * ADDRESSES);
        assert!(!budgets.old.is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        for (one, other, expected) in [
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
        ] {
            assert_eq!(source(one) == source(other), expected, "{one} {other}");
        }
    }
}
