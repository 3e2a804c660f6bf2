use std::time::Duration;

use tokio::time::Instant;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns the waits after `count` failures of `key`, in milliseconds.
fn waits(
    limiter: &mut impl RateLimiter<&'static str>,
    key: &'static str,
    count: usize,
) -> Vec<u128> {
    let now = Instant::now();
    let waits = (0..count).map(|_| limiter.when(&key, now).as_millis());
    waits.collect()
}

#[test]
fn the_exponential_wait_doubles_per_key_until_it_is_forgotten() {
    let mut limiter = ItemExponentialFailure::new(ms(1), ms(1_000));
    assert_eq!(waits(&mut limiter, "one", 5), [1, 2, 4, 8, 16]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [1, 2]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [1]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
}

#[test]
fn the_exponential_wait_has_a_maximum_and_does_not_overflow() {
    for (base, max) in [
        (ms(1), ms(1_000_000)),
        (ms(60_000), 1_000 * HOUR),
        (Duration::from_nanos(1), Duration::MAX),
        (Duration::MAX, Duration::MAX),
        (ms(5), ms(3)),
    ] {
        let mut limiter = ItemExponentialFailure::new(base, max);
        let now = Instant::now();
        let waits: Vec<_> = (0..1_000).map(|_| limiter.when(&"key", now)).collect();
        assert!(waits.is_sorted(), "{base:?} to {max:?}");
        assert_eq!(waits[0], base.min(max));
        assert_eq!(waits[999], max);
    }
    let mut none = ItemExponentialFailure::new(Duration::ZERO, HOUR);
    assert!(waits(&mut none, "key", 1_000).iter().all(|wait| *wait == 0));
}

#[test]
fn the_first_failures_wait_shortly_and_the_others_long() {
    let mut limiter = ItemFastSlow::new(ms(5), ms(10_000), 3);
    assert_eq!(waits(&mut limiter, "one", 5), [5, 5, 5, 10_000, 10_000]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [5, 5]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [5]);
}

#[test]
fn the_bucket_allows_a_burst_and_then_one_retry_per_interval() {
    let mut bucket = Bucket::new(ms(100), 3);
    let now = Instant::now();
    let mut after = |elapsed| RateLimiter::<&str>::when(&mut bucket, &"key", now + ms(elapsed));
    for (elapsed, wait) in [
        (0, 0),
        (0, 0),
        (0, 0),
        (0, 100),
        (50, 150),
        // Two tokens are owed, and are paid back at 300 ms.
        (300, 0),
        (300, 100),
        (10_000, 0),
        (10_000, 0),
        (10_000, 0),
        (10_000, 100),
    ] {
        assert_eq!(after(elapsed), ms(wait), "after {elapsed} ms");
    }
    RateLimiter::<&str>::forget(&mut bucket, &"key");
    assert_eq!(RateLimiter::<&str>::num_requeues(&bucket, &"key"), 0);
}

#[test]
fn the_longest_wait_and_the_highest_count_of_several_limiters_count() {
    let mut limiter = MaxOf::new([
        Box::new(ItemFastSlow::new(ms(5), ms(3_000), 3)) as Box<dyn RateLimiter<&'static str>>,
        Box::new(ItemExponentialFailure::new(ms(1), ms(1_000))),
    ]);
    assert_eq!(waits(&mut limiter, "one", 5), [5, 5, 5, 3_000, 3_000]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [5, 5]);
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [5]);
    let mut none = MaxOf::new([]);
    assert_eq!(waits(&mut none, "one", 1), [0]);
}

#[test]
fn a_longest_wait_limits_another_limiter() {
    let mut limiter = MaxWait::new(ItemFastSlow::new(ms(5), ms(1_000_000), 2), ms(500_000));
    assert_eq!(waits(&mut limiter, "one", 4), [5, 5, 500_000, 500_000]);
    assert_eq!(limiter.num_requeues(&"one"), 4);
    limiter.forget(&"one");
    assert_eq!(waits(&mut limiter, "one", 1), [5]);
}

#[test]
fn the_default_limits_single_keys_and_all_keys_together() {
    let mut limiter = default_rate_limiter();
    let now = Instant::now();
    let of_one: Vec<_> = (0..20).map(|_| limiter.when(&0, now).as_millis()).collect();
    assert_eq!(of_one[..4], [5, 10, 20, 40]);
    assert_eq!(of_one[17..], [655_360, 1_000_000, 1_000_000]);
    let of_others: Vec<_> = (1..=82)
        .map(|key| limiter.when(&key, now).as_millis())
        .collect();
    assert!(of_others[..80].iter().all(|wait| *wait == 5));
    assert_eq!(of_others[80..], [100, 200], "the burst of 100 is used up");
}
