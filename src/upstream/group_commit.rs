//! Group commit: one call for everybody who asked before it was made.
//!
//! What a call finds out holds at some moment after it was sent, so it serves those who came
//! before that moment, and nobody who came later.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::future::Shared;
use futures_util::future::WeakShared;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Calls under way at once. With one, who comes right after a call began waits for two.
const IN_FLIGHT: usize = 2;

/// Calls that are shared by all who ask for them before they are made.
///
/// `K` says what is asked for; the call learns of all that it is made for. `T` is its outcome.
pub struct GroupCommit<K, T: Clone> {
    inner: Arc<Inner<K, T>>,
}

struct Inner<K, T: Clone> {
    in_flight: Semaphore,
    gathering: Mutex<Gathering<K, T>>,
}

struct Gathering<K, T: Clone> {
    /// Counts the calls, so that each closes its own gathering only.
    number: u64,
    asked: HashSet<K>,
    /// The call that those who come now may join.
    next: Option<WeakShared<BoxFuture<'static, T>>>,
}

// === impl GroupCommit ===

impl<K, T> GroupCommit<K, T>
where
    K: Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The outcome of a call that is made after this one was called: `call`, or that of another who
    /// came before it was made.
    ///
    /// `call` gets what all asked for whom it is made. Cancel safe: the call goes on while anybody
    /// waits for it, and is dropped with the last one.
    pub async fn join<F, C>(&self, asked: K, call: F) -> T
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let outcome = self.next(asked, call);
        outcome.await
    }

    fn next<F, C>(&self, asked: K, call: F) -> Shared<BoxFuture<'static, T>>
    where
        F: FnOnce(HashSet<K>) -> C + Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let mut gathering = self.inner.gathering.lock();
        let next = gathering.next.as_ref().and_then(WeakShared::upgrade);
        if let Some(next) = next {
            gathering.asked.insert(asked);
            return next;
        }
        gathering.number += 1;
        gathering.asked = HashSet::from([asked]);
        let inner = Arc::clone(&self.inner);
        let number = gathering.number;
        let made = async move {
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

impl<K, T: Clone> Default for GroupCommit<K, T> {
    fn default() -> Self {
        let gathering = Gathering {
            number: 0,
            asked: HashSet::new(),
            next: None,
        };
        let inner = Inner {
            in_flight: Semaphore::new(IN_FLIGHT),
            gathering: Mutex::new(gathering),
        };
        Self {
            inner: Arc::new(inner),
        }
    }
}

impl<K, T: Clone> fmt::Debug for GroupCommit<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<K, T: Clone> Inner<K, T> {
    /// From now on nobody joins call `number`; what was asked of it.
    fn close(&self, number: u64) -> HashSet<K> {
        let mut gathering = self.gathering.lock();
        debug_assert_eq!(gathering.number, number, "only the newest call gathers");
        gathering.next = None;
        std::mem::take(&mut gathering.asked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::Instant;
    use tokio::time::sleep;
    use tokio::time::timeout;

    use super::*;

    const CALL: Duration = Duration::from_millis(100);

    #[derive(Clone, Default)]
    struct Calls {
        made: Arc<AtomicUsize>,
        group: Arc<GroupCommit<u32, (Instant, usize)>>,
    }

    impl Calls {
        /// When the call was made whose outcome this is, and for how many questions.
        async fn join(&self, asked: u32) -> (Instant, usize) {
            let made = Arc::clone(&self.made);
            let call = move |asked: HashSet<u32>| async move {
                made.fetch_add(1, Ordering::Relaxed);
                let sent = Instant::now();
                sleep(CALL).await;
                (sent, asked.len())
            };
            self.group.join(asked, call).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_serves_those_who_came_before_it() {
        let calls = Calls::default();
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
        let calls = Calls::default();
        let asked = [1, 2, 3, 3, 4, 4];
        let outcomes = join_all(asked.map(|asked| calls.join(asked))).await;
        let questions = outcomes.iter().map(|(_, questions)| *questions);
        assert_eq!(questions.collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_depends_on_who_leaves() {
        let calls = Calls::default();
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
}
