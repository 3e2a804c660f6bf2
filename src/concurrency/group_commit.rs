//! Group commit: one call for everybody who asked before it was made.
//!
//! What a call finds out holds at some moment after it was sent, so it serves those who came
//! before that moment, and nobody who came later.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::future::Shared;
use futures_util::future::WeakShared;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::sleep_until;

/// Calls under way at once. With one, who comes right after a call began waits for two.
const IN_FLIGHT: usize = 2;
/// After a call for so many, more are to be expected.
const LARGE_GROUP: u32 = 8;

/// Calls that are shared by all who ask for them before they are made.
///
/// `K` says what is asked for; the call learns of all that it is made for. `T` is its outcome.
pub struct GroupCommit<K, T: Clone> {
    inner: Arc<Inner<K, T>>,
}

/// How soon a call may follow one that is under way. Where none is, it is made at once.
///
/// Calls that follow each other closely find few askers each, just when many come at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSpacing {
    /// From the beginning of a call to the next.
    pub min: Duration,
    /// The same after a call for eight or more.
    pub after_large_group: Duration,
}

struct Inner<K, T: Clone> {
    spacing: CallSpacing,
    in_flight: Semaphore,
    pending: Mutex<PendingCall<K, T>>,
    /// Somebody joined who is in more of a hurry.
    reschedule: Notify,
}

#[derive(Clone, Copy)]
struct PreviousCall {
    started_at: Instant,
    is_large: bool,
}

struct PendingCall<K, T: Clone> {
    /// Counts the calls, so that each closes its own gathering only.
    number: u64,
    requests: HashSet<K>,
    callers: u32,
    /// When the call may be made.
    not_before: Option<Instant>,
    /// The call before.
    previous: Option<PreviousCall>,
    /// The call that those who come now may join.
    future: Option<WeakShared<BoxFuture<'static, T>>>,
}

// === impl GroupCommit ===

impl<K, T> GroupCommit<K, T>
where
    K: Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Calls that follow each other at `spacing`.
    pub fn new(spacing: CallSpacing) -> Self {
        let pending = PendingCall {
            number: 0,
            requests: HashSet::new(),
            callers: 0,
            not_before: None,
            previous: None,
            future: None,
        };
        let inner = Inner {
            spacing,
            in_flight: Semaphore::new(IN_FLIGHT),
            pending: Mutex::new(pending),
            reschedule: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The outcome of a call that is made after this one was called: `call`, or that of another who
    /// came before it was made.
    ///
    /// `call` gets what all asked for whom it is made. A caller lets `min_interval` pass from
    /// the beginning of one call to the next, for more to come.
    /// Cancel safe: the call goes on while anybody waits for it, and is dropped with the last one.
    pub async fn join<F, C>(&self, request: K, min_interval: Duration, call: F) -> T
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let outcome = self.join_or_start(request, min_interval, call);
        outcome.await
    }

    fn join_or_start<F, C>(
        &self,
        request: K,
        min_interval: Duration,
        call: F,
    ) -> Shared<BoxFuture<'static, T>>
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let mut pending = self.inner.pending.lock();
        let not_before = self.inner.not_before(&pending, min_interval);
        let future = pending.future.as_ref().and_then(WeakShared::upgrade);
        if let Some(future) = future {
            pending.requests.insert(request);
            pending.callers += 1;
            if not_before < pending.not_before {
                pending.not_before = not_before;
                self.inner.reschedule.notify_one();
            }
            return future;
        }
        pending.number += 1;
        pending.requests = HashSet::from([request]);
        pending.callers = 1;
        pending.not_before = not_before;
        let inner = Arc::clone(&self.inner);
        let number = pending.number;
        let made = async move {
            inner.wait_for_start().await;
            let permit = inner.in_flight.acquire().await;
            let requests = inner.take_requests(number);
            let outcome = call(requests).await;
            drop(permit);
            outcome
        };
        let future = made.boxed().shared();
        pending.future = future.downgrade();
        future
    }
}

impl<K, T: Clone> fmt::Debug for GroupCommit<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<K, T: Clone> Inner<K, T> {
    /// When a call may be made for one who comes now; `None` is at once.
    fn not_before(&self, pending: &PendingCall<K, T>, min_interval: Duration) -> Option<Instant> {
        let PreviousCall {
            started_at,
            is_large,
        } = pending.previous?;
        let is_under_way = self.in_flight.available_permits() < IN_FLIGHT;
        let pause = match (is_under_way, is_large) {
            // One who asks again and again is no crowd, and waits for nobody.
            (false, false) => return None,
            (false, true) => min_interval,
            (true, false) => self.spacing.min.max(min_interval),
            (true, true) => self.spacing.after_large_group.max(min_interval),
        };
        Some(started_at + pause)
    }

    /// Waits until the gathering may end.
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

    /// From now on nobody joins call `number`; what was asked of it.
    fn take_requests(&self, number: u64) -> HashSet<K> {
        let mut pending = self.pending.lock();
        debug_assert_eq!(pending.number, number, "only the newest call gathers");
        pending.future = None;
        pending.previous = Some(PreviousCall {
            started_at: Instant::now(),
            is_large: pending.callers >= LARGE_GROUP,
        });
        std::mem::take(&mut pending.requests)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use futures_util::future::join_all;
    use tokio::time::sleep;
    use tokio::time::timeout;

    use super::*;

    const CALL: Duration = Duration::from_millis(100);

    #[derive(Clone)]
    struct Calls {
        made: Arc<AtomicUsize>,
        group: Arc<GroupCommit<u32, (Instant, usize)>>,
    }

    impl Calls {
        fn new(spacing: CallSpacing) -> Self {
            Self {
                made: Arc::default(),
                group: Arc::new(GroupCommit::new(spacing)),
            }
        }

        /// When the call was made whose outcome this is, and for how many questions.
        async fn join(&self, request: u32) -> (Instant, usize) {
            self.join_with(request, Duration::ZERO).await
        }

        async fn join_with(&self, request: u32, min_interval: Duration) -> (Instant, usize) {
            let made = Arc::clone(&self.made);
            let call = move |requests: HashSet<u32>| async move {
                made.fetch_add(1, Ordering::Relaxed);
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
                    "{n} was told of a call made before it came"
                );
                // One that ends now, and then its own.
                assert!(
                    joined_at.elapsed() <= 2 * CALL,
                    "{n} waited {:?}",
                    joined_at.elapsed()
                );
            }
        });
        join_all(clients).await;
        // 400 ms of two calls at a time, of which the first are for one client each.
        let made = calls.made.load(Ordering::Relaxed);
        assert!((4..=9).contains(&made), "{made} calls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_receives_the_requests_of_all_callers() {
        let calls = Calls::new(CallSpacing::default());
        let requests = [1, 2, 3, 3, 4, 4];
        let outcomes = join_all(requests.map(|request| calls.join(request))).await;
        let questions = outcomes.iter().map(|(_, questions)| *questions);
        assert_eq!(questions.collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2]);
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
        let (_, questions) = remaining.expect("an outcome");
        assert_eq!(questions, 2);
        let all_cancelled = timeout(short, calls.join(3)).await;
        assert!(all_cancelled.is_err());
        timeout(3 * CALL, calls.join(4)).await.expect("an outcome");
    }

    const SPACING: CallSpacing = CallSpacing {
        min: Duration::from_millis(5),
        after_large_group: Duration::from_millis(40),
    };

    /// When the calls were made, in ms, of askers who come at such times with such patience.
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
        for (callers, made) in [
            (vec![(0, 0)], vec![0]),
            // Two are under way from 5 to 100.
            (vec![(0, 0), (1, 0), (4, 0), (101, 0)], vec![0, 5, 5, 101]),
            // The last is under way, and was for one, or for a crowd.
            (
                vec![(0, 0), (1, 98), (101, 0), (110, 0)],
                vec![0, 98, 103, 198],
            ),
            (
                [vec![(0, 0)], vec![(1, 98); 8], vec![(101, 0), (110, 0)]].concat(),
                [vec![0], vec![98; 8], vec![138, 138]].concat(),
            ),
            // None is under way any more.
            (vec![(0, 80), (100, 80), (200, 80)], vec![0, 100, 200]),
            (vec![(0, 80), (1, 80), (2, 80)], vec![0, 80, 80]),
            (vec![(0, 80), (1, 80), (20, 0)], vec![0, 20, 20]),
            // None either, and the patience is over.
            (
                [vec![(0, 80)], vec![(1, 80); 8], vec![(191, 80)]].concat(),
                [vec![0], vec![80; 8], vec![191]].concat(),
            ),
            (
                [vec![(0, 80)], vec![(1, 150); 8], vec![(255, 150), (256, 0)]].concat(),
                [vec![0], vec![150; 8], vec![256, 256]].concat(),
            ),
            // One after another, until two meet.
            (
                vec![(0, 250), (101, 250), (202, 250), (203, 250), (700, 250)],
                vec![0, 101, 202, 452, 700],
            ),
            // The patient may come later, too.
            (vec![(0, 0), (1, 0), (2, 80)], vec![0, 5, 5]),
        ] {
            assert_eq!(start_times(&callers).await, made, "{callers:?}");
        }
    }
}
