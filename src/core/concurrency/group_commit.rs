//! GroupCommit: callers that arrive while a call is pending share that call.
//!
//! The result of a call describes a time after the start of the call. So it is valid for all
//! callers that arrived before the start, and for no caller that arrived later.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Maximum number of calls in flight. If it were one, a caller that arrives just after a call was
/// started would wait for the time of two calls.
const IN_FLIGHT: usize = 2;
/// A call for at least this number of callers is large. More callers are then likely to follow.
pub const LARGE_GROUP: u32 = 8;

/// Calls that are shared by all callers that arrive before the call is started.
///
/// `K` is the request of one caller; a call gets the set of the requests of all its callers. `T` is
/// the result of a call; each caller gets a clone.
pub struct GroupCommit<K, T: Clone> {
    inner: Arc<Inner<K, T>>,
}

/// The minimum time between the starts of two calls, while a call is in flight.
///
/// If calls follow each other too closely, each of them serves only a few callers, even though many
/// callers arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSpacing {
    /// The time from the start of a call to the start of the next.
    pub min: Duration,
    /// The time to use in place of `min` if the earlier call had eight or more callers.
    pub after_large_group: Duration,
}

struct Inner<K, T: Clone> {
    spacing: CallSpacing,
    in_flight: Semaphore,
    /// The callers of all calls in flight.
    callers_in_flight: AtomicU32,
    pending: Mutex<PendingCall<K, T>>,
    /// Notified when a new caller changes the start of the pending call.
    reschedule: Notify,
}

/// Counts the callers of a call in flight; dropping it subtracts them.
struct CallersInFlight<'a> {
    total: &'a AtomicU32,
    callers: u32,
}

struct PendingCall<K, T: Clone> {
    /// The number of the newest call. A call that starts checks that it is still the newest.
    number: u64,
    requests: HashSet<K>,
    callers: u32,
    /// The shortest `min_interval` of the callers.
    min_interval: Duration,
    /// The earliest start of the call; `None` if it may start at once.
    not_before: Option<Instant>,
    /// When the last call was started, and whether it was large; `None` before the first one.
    previous: Option<(Instant, bool)>,
    /// The pending call, which new callers join; `None` if there is none.
    future: Option<WeakShared<BoxFuture<'static, T>>>,
}

// === impl GroupCommit ===

impl<K, T> GroupCommit<K, T>
where
    K: Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Creates a group commit with `spacing` between its calls.
    pub fn new(spacing: CallSpacing) -> Self {
        let pending = PendingCall {
            number: 0,
            requests: HashSet::new(),
            callers: 0,
            min_interval: Duration::ZERO,
            not_before: None,
            previous: None,
            future: None,
        };
        let inner = Inner {
            spacing,
            in_flight: Semaphore::new(IN_FLIGHT),
            callers_in_flight: AtomicU32::new(0),
            pending: Mutex::new(pending),
            reschedule: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns true if the call for `request` starts only after one of those in flight has ended.
    pub fn is_waiting(&self, request: &K) -> bool {
        let is_pending = self.inner.pending.lock().requests.contains(request);
        is_pending && self.inner.in_flight.available_permits() == 0
    }

    /// Waits for a call that starts after this method was called, and returns its result. The call
    /// is the `call` of this caller, or the `call` of an earlier caller that was still pending.
    ///
    /// `call` gets the requests of all callers that it serves. If several callers wait now, or the
    /// last call was large, this caller accepts to wait until `min_interval` has passed since the
    /// start of the last call, so that more callers can join. A caller that comes alone never
    /// waits for that.
    ///
    /// Cancel safe: a call continues while any of its callers waits, and is dropped with the last
    /// one.
    pub async fn join<F, C>(&self, request: K, min_interval: Duration, call: F) -> T
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        // The call that is not needed, and the requests of a call that was dropped before it
        // started, are dropped after the lock.
        let (outcome, unneeded) = {
            let mut pending = self.inner.pending.lock();
            if let Some(future) = pending.future.as_ref().and_then(WeakShared::upgrade) {
                pending.requests.insert(request);
                pending.callers += 1;
                pending.min_interval = pending.min_interval.min(min_interval);
                let not_before = self.inner.not_before(&pending);
                if not_before != pending.not_before {
                    pending.not_before = not_before;
                    self.inner.reschedule.notify_one();
                }
                (future, (Some(call), HashSet::new()))
            } else {
                pending.number += 1;
                let abandoned = std::mem::replace(&mut pending.requests, HashSet::from([request]));
                pending.callers = 1;
                pending.min_interval = min_interval;
                pending.not_before = self.inner.not_before(&pending);
                let (inner, number) = (Arc::clone(&self.inner), pending.number);
                let call_future = async move {
                    inner.wait_for_start().await;
                    let permit = inner.in_flight.acquire().await;
                    let (requests, callers) = inner.take_requests(number);
                    let outcome = call(requests).await;
                    drop((permit, callers));
                    outcome
                };
                let future = call_future.boxed().shared();
                pending.future = future.downgrade();
                (future, (None, abandoned))
            }
        };
        drop(unneeded);
        outcome.await
    }
}

impl<K, T: Clone> fmt::Debug for GroupCommit<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<K, T: Clone> Inner<K, T> {
    /// Returns the earliest start of the pending call, or `None` if it may start at once.
    fn not_before(&self, pending: &PendingCall<K, T>) -> Option<Instant> {
        let (started_at, is_large) = pending.previous?;
        let in_flight = self.callers_in_flight.load(Ordering::Relaxed);
        let pause = match (in_flight > 0, is_large) {
            (_, false) => self.gathering_time(in_flight + pending.callers, pending.min_interval)?,
            (false, true) => pending.min_interval,
            (true, true) => self.spacing.after_large_group.max(pending.min_interval),
        };
        Some(started_at + pause)
    }

    /// Returns the time between two calls for `waiting` callers, which are those of the calls in
    /// flight and of the pending call. The time doubles with each caller, up to `min_interval`: the
    /// more callers wait, the more are likely to follow. Returns `None` for one caller, even if it
    /// calls repeatedly. Guarded by `a_lone_caller_never_waits_and_a_herd_costs_few_calls`.
    fn gathering_time(&self, waiting: u32, min_interval: Duration) -> Option<Duration> {
        let doublings = waiting.checked_sub(2)?;
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let longest = self.spacing.min.max(min_interval);
        Some(self.spacing.min.saturating_mul(factor).min(longest))
    }

    async fn wait_for_start(&self) {
        loop {
            let not_before = self.pending.lock().not_before;
            let Some(not_before) = not_before.filter(|not_before| *not_before > Instant::now())
            else {
                return;
            };
            tokio::select! {
                () = sleep_until(not_before) => {}
                () = self.reschedule.notified() => {}
            }
        }
    }

    /// Closes call `number` for further callers, and returns the requests of its callers.
    fn take_requests(&self, number: u64) -> (HashSet<K>, CallersInFlight<'_>) {
        let mut pending = self.pending.lock();
        debug_assert_eq!(pending.number, number, "only the newest call is pending");
        pending.future = None;
        pending.previous = Some((Instant::now(), pending.callers >= LARGE_GROUP));
        let (total, callers) = (&self.callers_in_flight, pending.callers);
        total.fetch_add(callers, Ordering::Relaxed);
        let callers = CallersInFlight { total, callers };
        (std::mem::take(&mut pending.requests), callers)
    }
}

// === impl CallersInFlight ===

impl Drop for CallersInFlight<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.callers, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use tokio::time::{sleep, timeout};

    use super::*;

    const CALL: Duration = Duration::from_millis(100);

    #[derive(Clone)]
    struct Calls {
        started: Arc<AtomicUsize>,
        group: Arc<GroupCommit<u32, (Instant, usize)>>,
    }

    impl Calls {
        fn new(spacing: CallSpacing) -> Self {
            Self {
                started: Arc::default(),
                group: Arc::new(GroupCommit::new(spacing)),
            }
        }

        /// Joins a call. Returns the time of its start and its number of different requests.
        async fn join(&self, request: u32) -> (Instant, usize) {
            self.join_with(request, Duration::ZERO).await
        }

        async fn join_with(&self, request: u32, min_interval: Duration) -> (Instant, usize) {
            let started = Arc::clone(&self.started);
            let call = move |requests: HashSet<u32>| async move {
                started.fetch_add(1, Ordering::Relaxed);
                let sent = Instant::now();
                sleep(CALL).await;
                (sent, requests.len())
            };
            self.group.join(request, min_interval, call).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_serves_the_callers_that_joined_before_it_started() {
        let calls = Calls::new(CallSpacing::default());
        let clients = (0..300u32).map(|n| {
            let calls = calls.clone();
            async move {
                sleep(Duration::from_millis(n.into())).await;
                let joined_at = Instant::now();
                let (sent, _) = calls.join(n % 7).await;
                assert!(
                    sent >= joined_at,
                    "caller {n} got the result of an earlier call"
                );
                // At most the rest of a call in flight, and then the caller's own call.
                assert!(
                    joined_at.elapsed() <= 2 * CALL,
                    "caller {n} waited {:?}",
                    joined_at.elapsed()
                );
            }
        });
        join_all(clients).await;
        // Callers arrive during 300 ms and calls take 100 ms, two concurrently. The first two calls
        // serve one caller each.
        let started = calls.started.load(Ordering::Relaxed);
        assert!((4..=9).contains(&started), "{started} calls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_receives_the_requests_of_all_callers() {
        let calls = Calls::new(CallSpacing::default());
        let requests = [1, 2, 3, 3, 4, 4];
        let outcomes = join_all(requests.map(|request| calls.join(request))).await;
        let request_counts = outcomes.iter().map(|(_, request_count)| *request_count);
        assert_eq!(request_counts.collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_caller_affects_no_other_caller() {
        let calls = Calls::new(CallSpacing::default());
        let short = Duration::from_millis(10);
        let (_, _, cancelled, remaining) = tokio::join!(
            calls.join(0),
            calls.join(0),
            timeout(short, calls.join(1)),
            timeout(3 * CALL, calls.join(2)),
        );
        assert!(cancelled.is_err());
        let (_, request_count) = remaining.expect("a result");
        assert_eq!(request_count, 2);
        let all_cancelled = timeout(short, calls.join(3)).await;
        assert!(all_cancelled.is_err());
        timeout(3 * CALL, calls.join(4)).await.expect("a result");
    }

    const SPACING: CallSpacing = CallSpacing {
        min: Duration::from_millis(5),
        after_large_group: Duration::from_millis(40),
    };

    /// Returns, for each caller, the start time in ms of the call that served it. A caller is given
    /// as its arrival time and `min_interval` in ms.
    async fn start_times(callers: &[(u64, u64)]) -> Vec<u128> {
        let calls = Calls::new(SPACING);
        let began = Instant::now();
        let requests = callers.iter().map(async |&(comes, min_interval)| {
            sleep(Duration::from_millis(comes)).await;
            let min_interval = Duration::from_millis(min_interval);
            let (sent, _) = calls.join_with(0, min_interval).await;
            sent.duration_since(began).as_millis()
        });
        join_all(requests).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_spaced_while_one_is_in_flight() {
        for (callers, expected) in [
            (vec![(0, 0)], vec![0]),
            // Two calls are in flight from 5 to 100 ms.
            (vec![(0, 0), (1, 0), (4, 0), (101, 0)], vec![0, 5, 5, 101]),
            // The last call is in flight. It serves one caller in this case, and eight in the next.
            (
                vec![(0, 0), (1, 0), (103, 0), (104, 0)],
                vec![0, 5, 103, 108],
            ),
            (
                [vec![(0, 0)], vec![(1, 98); 8], vec![(101, 0), (110, 0)]].concat(),
                [vec![0], vec![98; 8], vec![138, 138]].concat(),
            ),
            // If no call is in flight, a caller starts one at once.
            (vec![(0, 80), (100, 80), (200, 80)], vec![0, 100, 200]),
            // The more callers wait, the longer the call gathers, up to the shortest
            // `min_interval`.
            (vec![(0, 80), (1, 80)], vec![0, 5]),
            (vec![(0, 80), (1, 80), (2, 80)], vec![0, 10, 10]),
            (
                vec![(0, 80), (1, 80), (2, 80), (3, 80)],
                vec![0, 20, 20, 20],
            ),
            (
                [vec![(0, 80)], vec![(1, 80); 6]].concat(),
                [vec![0], vec![80; 6]].concat(),
            ),
            (vec![(0, 80), (1, 80), (2, 80), (8, 0)], vec![0, 8, 8, 8]),
            // The last call was large and has ended, and the shortest `min_interval` has passed.
            (
                [vec![(0, 80)], vec![(1, 80); 8], vec![(191, 80)]].concat(),
                [vec![0], vec![80; 8], vec![191]].concat(),
            ),
            (
                [vec![(0, 80)], vec![(1, 150); 8], vec![(255, 150), (256, 0)]].concat(),
                [vec![0], vec![150; 8], vec![256, 256]].concat(),
            ),
            // A call in flight does not delay the next one: callers wait only for the spacing
            // between the starts of calls.
            (
                vec![(0, 250), (101, 250), (202, 250), (203, 250), (700, 250)],
                vec![0, 101, 202, 207, 700],
            ),
            // A caller with a long `min_interval` joins a call that starts earlier.
            (vec![(0, 0), (1, 0), (2, 80)], vec![0, 5, 5]),
        ] {
            assert_eq!(start_times(&callers).await, expected, "{callers:?}");
        }
    }

    /// Clients arrive at random times within `seconds`, and each opens `watches` watches one after
    /// another. Returns the number of calls and each caller's wait, without its call's own time.
    async fn reconnect(clients: u64, seconds: u64, watches: u64) -> (usize, Vec<Duration>) {
        const CALL_SPACING: CallSpacing = CallSpacing {
            min: Duration::from_millis(5),
            after_large_group: Duration::from_millis(100),
        };
        let group = GroupCommit::new(CALL_SPACING);
        let calls = Arc::new(AtomicUsize::new(0));
        let mut rng = StdRng::seed_from_u64(1);
        let all = (0..clients).map(|_| {
            let (group, calls) = (&group, &calls);
            let arrival = Duration::from_secs(seconds).mul_f64(rng.random());
            async move {
                sleep(arrival).await;
                let mut waits = Vec::new();
                for _ in 0..watches {
                    let calls = Arc::clone(calls);
                    let call = move |_: HashSet<()>| async move {
                        calls.fetch_add(1, Ordering::Relaxed);
                        let sent = Instant::now();
                        sleep(Duration::from_millis(8)).await;
                        sent
                    };
                    let joined = Instant::now();
                    let sent = group.join((), Duration::from_millis(300), call).await;
                    waits.push(sent.duration_since(joined));
                }
                waits
            }
        });
        let waits = join_all(all).await.concat();
        (calls.load(Ordering::Relaxed), waits)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_caller_never_waits_and_a_herd_costs_few_calls() {
        let longest = |waits: Vec<Duration>| waits.into_iter().max().expect("a wait").as_millis();
        for (clients, seconds, watches, most_calls, longest_wait) in [
            (1, 1, 50, 50, 0),
            // Two or three clients wait a few milliseconds for each other.
            (2, 0, 50, 100, 5),
            (3, 0, 50, 150, 10),
            (1_500, 10, 1, 60, 300),
            (3_000, 10, 1, 60, 300),
            (5_000, 1, 1, 8, 300),
            (500, 1, 1, 10, 300),
        ] {
            let (calls, waits) = reconnect(clients, seconds, watches).await;
            let longest = longest(waits);
            assert!(
                calls <= most_calls && longest <= longest_wait,
                "{clients} clients in {seconds} s: {calls} calls, waited up to {longest} ms"
            );
        }
    }
}
