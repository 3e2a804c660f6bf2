//! Counts the failed attempts of each source address, or each user.
//!
//! An address that fails too often gets 429 for credentials that kubefan has not seen accepted:
//! kubefan sends neither a review nor a forwarded request for them. Tokens that were accepted are
//! not limited, because a load balancer may give all clients the same address.
//!
//! A request counts once: when the API server refuses its token in a review, or else when the API
//! server refuses the forwarded request.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use kubefan_core::concurrency::{Generations, TokenBucket};
use parking_lot::Mutex;
use tokio::time::Instant;

/// An address may have the failures of this many seconds at once.
const BURST_SECONDS: u32 = 10;
/// The number of addresses or users that are remembered, in each of two generations.
const ADDRESSES: usize = 8_192;
/// The longest wait of a source that continues to fail, beside the interval of one attempt at the
/// permitted rate. Without this limit, many failures at once would lock the source out for a long
/// time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Where a request comes from: an IPv4 address, or the network (/64) of an IPv6 address, because
/// one host may have all addresses of such a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Source(IpAddr);

/// The failed attempts of the recent past, by their source.
pub(in crate::identity) struct FailedAttempts<K> {
    /// How many attempts of a source may still fail if none has failed yet.
    unused: TokenBucket,
    /// How many attempts may still fail, of the sources with attempts that have failed.
    left: Mutex<Generations<K, TokenBucket>>,
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
    /// Creates an empty record. `per_second` is how many attempts of a source may fail per second,
    /// on average.
    pub(in crate::identity) fn new(per_second: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        let burst = per_second.get().saturating_mul(BURST_SECONDS);
        Self {
            unused: TokenBucket::new(interval, burst),
            left: Mutex::new(Generations::new(ADDRESSES)),
        }
    }

    /// Counts a failed attempt of `source`.
    pub(in crate::identity) fn count(&self, source: K) {
        let now = Instant::now();
        let mut left = self.left.lock();
        let mut of_source = left.get(&source).copied().unwrap_or(self.unused);
        of_source.take(now);
        of_source.limit_debt(LONGEST_WAIT, now);
        left.insert(source, of_source);
    }

    /// Forgets the failed attempts of `source`, because the API server has also refused good
    /// credentials.
    pub(in crate::identity) fn forgive(&self, source: K) {
        self.left.lock().remove(&source);
    }

    /// Returns true if `source` has failed too often, and its next attempt must wait.
    pub(in crate::identity) fn is_exhausted(&self, source: K) -> bool {
        let left = self.left.lock();
        let of_source = left.get(&source);
        of_source.is_some_and(|of_source| !of_source.has_token(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
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
