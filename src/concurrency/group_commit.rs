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
const CROWD: u32 = 8;

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
pub struct Pace {
    /// From the beginning of a call to the next.
    pub least: Duration,
    /// The same after a call for eight or more.
    pub most: Duration,
}

struct Inner<K, T: Clone> {
    pace: Pace,
    in_flight: Semaphore,
    gathering: Mutex<Gathering<K, T>>,
    /// Somebody joined who is in more of a hurry.
    hurry: Notify,
}

#[derive(Clone, Copy)]
struct Before {
    made: Instant,
    is_crowd: bool,
}

struct Gathering<K, T: Clone> {
    /// Counts the calls, so that each closes its own gathering only.
    number: u64,
    asked: HashSet<K>,
    askers: u32,
    /// When the call may be made.
    not_before: Option<Instant>,
    /// The call before.
    before: Option<Before>,
    /// The call that those who come now may join.
    next: Option<WeakShared<BoxFuture<'static, T>>>,
}

// === impl GroupCommit ===

impl<K, T> GroupCommit<K, T>
where
    K: Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Calls that follow each other at `pace`.
    pub fn new(pace: Pace) -> Self {
        let gathering = Gathering {
            number: 0,
            asked: HashSet::new(),
            askers: 0,
            not_before: None,
            before: None,
            next: None,
        };
        let inner = Inner {
            pace,
            in_flight: Semaphore::new(IN_FLIGHT),
            gathering: Mutex::new(gathering),
            hurry: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The outcome of a call that is made after this one was called: `call`, or that of another who
    /// came before it was made.
    ///
    /// `call` gets what all asked for whom it is made. Who has `patience` lets so much time pass from
    /// the beginning of one call to the next, for more to come.
    /// Cancel safe: the call goes on while anybody waits for it, and is dropped with the last one.
    pub async fn join<F, C>(&self, asked: K, patience: Duration, call: F) -> T
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let outcome = self.next(asked, patience, call);
        outcome.await
    }

    fn next<F, C>(&self, asked: K, patience: Duration, call: F) -> Shared<BoxFuture<'static, T>>
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let mut gathering = self.inner.gathering.lock();
        let not_before = self.inner.not_before(&gathering, patience);
        let next = gathering.next.as_ref().and_then(WeakShared::upgrade);
        if let Some(next) = next {
            gathering.asked.insert(asked);
            gathering.askers += 1;
            if not_before < gathering.not_before {
                gathering.not_before = not_before;
                self.inner.hurry.notify_one();
            }
            return next;
        }
        gathering.number += 1;
        gathering.asked = HashSet::from([asked]);
        gathering.askers = 1;
        gathering.not_before = not_before;
        let inner = Arc::clone(&self.inner);
        let number = gathering.number;
        let made = async move {
            inner.keep_pace().await;
            let permit = inner.in_flight.acquire().await;
            let asked = inner.close(number);
            let outcome = call(asked).await;
            drop(permit);
            outcome
        };
        let next = made.boxed().shared();
        gathering.next = next.downgrade();
        next
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
    fn not_before(&self, gathering: &Gathering<K, T>, patience: Duration) -> Option<Instant> {
        let Before { made, is_crowd } = gathering.before?;
        let is_under_way = self.in_flight.available_permits() < IN_FLIGHT;
        let pause = match (is_under_way, is_crowd) {
            // One who asks again and again is no crowd, and waits for nobody.
            (false, false) => return None,
            (false, true) => patience,
            (true, false) => self.pace.least.max(patience),
            (true, true) => self.pace.most.max(patience),
        };
        Some(made + pause)
    }

    /// Waits until the gathering may end.
    async fn keep_pace(&self) {
        loop {
            let not_before = self.gathering.lock().not_before;
            let Some(not_before) = not_before.filter(|not_before| *not_before > Instant::now())
            else {
                return;
            };
            tokio::select! {
                () = sleep_until(not_before) => {}
                () = self.hurry.notified() => {}
            }
        }
    }

    /// From now on nobody joins call `number`; what was asked of it.
    fn close(&self, number: u64) -> HashSet<K> {
        let mut gathering = self.gathering.lock();
        debug_assert_eq!(gathering.number, number, "only the newest call gathers");
        gathering.next = None;
        gathering.before = Some(Before {
            made: Instant::now(),
            is_crowd: gathering.askers >= CROWD,
        });
        std::mem::take(&mut gathering.asked)
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
        fn new(pace: Pace) -> Self {
            Self {
                made: Arc::default(),
                group: Arc::new(GroupCommit::new(pace)),
            }
        }

        /// When the call was made whose outcome this is, and for how many questions.
        async fn join(&self, asked: u32) -> (Instant, usize) {
            self.join_with(asked, Duration::ZERO).await
        }

        async fn join_with(&self, asked: u32, patience: Duration) -> (Instant, usize) {
            let made = Arc::clone(&self.made);
            let call = move |asked: HashSet<u32>| async move {
                made.fetch_add(1, Ordering::Relaxed);
                let sent = Instant::now();
                sleep(CALL).await;
                (sent, asked.len())
            };
            self.group.join(asked, patience, call).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_serves_those_who_came_before_it() {
        let calls = Calls::new(Pace::default());
        let clients = (0..300u32).map(|n| {
            let calls = calls.clone();
            async move {
                sleep(Duration::from_millis(n.into())).await;
                let came = Instant::now();
                let (sent, _) = calls.join(n % 7).await;
                assert!(sent >= came, "{n} was told of a call made before it came");
                // One that ends now, and then its own.
                assert!(
                    came.elapsed() <= 2 * CALL,
                    "{n} waited {:?}",
                    came.elapsed()
                );
            }
        });
        join_all(clients).await;
        // 400 ms of two calls at a time, of which the first are for one client each.
        let made = calls.made.load(Ordering::Relaxed);
        assert!((4..=9).contains(&made), "{made} calls");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_learns_what_all_asked() {
        let calls = Calls::new(Pace::default());
        let asked = [1, 2, 3, 3, 4, 4];
        let outcomes = join_all(asked.map(|asked| calls.join(asked))).await;
        let questions = outcomes.iter().map(|(_, questions)| *questions);
        assert_eq!(questions.collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_depends_on_who_leaves() {
        let calls = Calls::new(Pace::default());
        let short = Duration::from_millis(10);
        let (_, _, left, stayed) = tokio::join!(
            calls.join(0),
            calls.join(0),
            timeout(short, calls.join(1)),
            timeout(3 * CALL, calls.join(2)),
        );
        assert!(left.is_err());
        let (_, questions) = stayed.expect("an outcome");
        assert_eq!(questions, 2);
        let all_left = timeout(short, calls.join(3)).await;
        assert!(all_left.is_err());
        timeout(3 * CALL, calls.join(4)).await.expect("an outcome");
    }

    const PACE: Pace = Pace {
        least: Duration::from_millis(5),
        most: Duration::from_millis(40),
    };

    /// When the calls were made, in ms, of askers who come at such times with such patience.
    async fn made_for(askers: &[(u64, u64)]) -> Vec<u128> {
        let calls = Calls::new(PACE);
        let began = Instant::now();
        let asked = askers.iter().map(async |&(comes, patience)| {
            sleep(Duration::from_millis(comes)).await;
            let patience = Duration::from_millis(patience);
            let (sent, _) = calls.join_with(0, patience).await;
            sent.duration_since(began).as_millis()
        });
        join_all(asked).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_keep_their_distance_while_one_is_under_way() {
        for (askers, made) in [
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
            assert_eq!(made_for(&askers).await, made, "{askers:?}");
        }
    }
}
