//! A queue for a limited resource, for example for requests in flight.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Grants a limited number of slots; further askers wait in a bounded queue. Askers take turns,
/// so an asker of many slots delays every other asker by one slot only. One asker gets at most
/// half of the slots. So other askers still get slots if it holds its slots for a long time.
/// Clones share the queue.
#[derive(Clone)]
pub struct FairQueue<K: Asker> {
    state: Arc<Mutex<State<K>>>,
}

/// The asker of a slot. All askers with equal values share one place in the order.
pub trait Asker: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Asker for K {}

/// Identifies an asker where its type can't be named. Two askers have the same ID
/// with a probability of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AskerId(u64);

impl AskerId {
    /// Returns the ID of `asker` in this process.
    pub fn of(asker: &impl Hash) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        Self(HASHER.get_or_init(RandomState::new).hash_one(asker))
    }
}

struct State<K: Asker> {
    /// Upper limit of `total`.
    capacity: usize,
    /// How many more slots may be taken.
    free: usize,
    /// The number of slots that are taken, together with those that askers wait for.
    total: usize,
    /// The askers that have a slot or wait for one.
    askers: HashMap<K, Requests<K>>,
    /// The waiting askers; the next one is at the front. None of these askers may
    /// have another slot now.
    order: VecDeque<K>,
}

/// The slots that one asker has or waits for.
struct Requests<K: Asker> {
    total: usize,
    taken: usize,
    waiting: VecDeque<oneshot::Sender<Slot<K>>>,
}

/// A slot. Dropping this frees the slot for other askers.
struct Slot<K: Asker> {
    state: Arc<Mutex<State<K>>>,
    asker: K,
}

/// Counts a slot that is taken or waited for. Dropping this ends the count.
struct Place<K: Asker> {
    state: Arc<Mutex<State<K>>>,
    asker: K,
}

/// A slot, which is taken until this is dropped.
pub struct Permit<K: Asker> {
    // Must be dropped first, so that a slot that becomes free is counted as free.
    _slot: Slot<K>,
    _place: Place<K>,
}

/// The error of a full queue: too many slots are waited for, in total or by this asker.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// Returns whether an asker that has `own` slots may take one of the `free` slots. An asker may
/// have as many slots as are free, so if it is alone, it gets half of all slots. An asker without a
/// slot gets one while any slot is free.
fn may_take(own: usize, free: usize) -> bool {
    free > 0 && (own == 0 || own < free)
}

// === impl FairQueue ===

impl<K: Asker> FairQueue<K> {
    /// Creates a queue for `slots`. At most `capacity` slots can be taken or waited for in total.
    pub fn new(slots: usize, capacity: usize) -> Self {
        let state = State {
            capacity,
            free: slots,
            total: 0,
            askers: HashMap::new(),
            order: VecDeque::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns the number of slots that are free.
    pub fn free(&self) -> usize {
        self.state.lock().free
    }

    /// Waits until `asker` may have a slot. Cancel safe: dropping the future removes the
    /// asker from the queue.
    ///
    /// # Errors
    /// [`Full`], at once, if the queue is too full for this asker.
    pub async fn admit(&self, asker: K) -> Result<Permit<K>, Full> {
        let (place, slot) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let own = state.askers.get(&asker).map_or(0, |own| own.total);
            if !may_take(own, state.capacity.saturating_sub(state.total)) {
                return Err(Full);
            }
            let place = Place {
                state: Arc::clone(&self.state),
                asker: asker.clone(),
            };
            state.total += 1;
            let requests = state.askers.entry(asker.clone()).or_insert(Requests {
                total: 0,
                taken: 0,
                waiting: VecDeque::new(),
            });
            requests.total += 1;
            if may_take(requests.taken, state.free) {
                state.free -= 1;
                requests.taken += 1;
                let state = Arc::clone(&self.state);
                (place, Ok(Slot { state, asker }))
            } else {
                if requests.waiting.is_empty() {
                    state.order.push_back(asker);
                }
                let (grant, granted) = oneshot::channel();
                requests.waiting.push_back(grant);
                (place, Err(granted))
            }
        };
        let slot = match slot {
            Ok(slot) => slot,
            // The sender exists until it has sent a slot.
            Err(granted) => granted.await.map_err(|_| Full)?,
        };
        Ok(Permit {
            _slot: slot,
            _place: place,
        })
    }
}

// === impl State ===

impl<K: Asker> State<K> {
    /// Takes a slot for the next asker that may have one and still waits.
    fn next(&mut self) -> Option<(K, oneshot::Sender<Slot<K>>)> {
        while self.free > 0 {
            let may_start = |asker| {
                let requests: Option<&Requests<K>> = self.askers.get(asker);
                requests.is_some_and(|own| may_take(own.taken, self.free))
            };
            // Only askers with slots are passed over, so they are few.
            let first = self.order.iter().position(may_start)?;
            let asker = self.order.remove(first)?;
            let requests = self.askers.get_mut(&asker)?;
            let next = requests.waiting.pop_front();
            if !requests.waiting.is_empty() {
                self.order.push_back(asker.clone());
            }
            if let Some(next) = next.filter(|next| !next.is_closed()) {
                requests.taken += 1;
                self.free -= 1;
                return Some((asker, next));
            }
        }
        None
    }

    /// Takes back a slot of `asker`.
    fn release(&mut self, asker: &K) {
        self.free += 1;
        if let Some(requests) = self.askers.get_mut(asker) {
            requests.taken -= 1;
            self.forget_idle(asker);
        }
    }

    /// Takes back a place of `asker`.
    fn leave(&mut self, asker: &K) {
        self.total -= 1;
        if let Some(requests) = self.askers.get_mut(asker) {
            requests.total -= 1;
            self.forget_idle(asker);
        }
    }

    /// Forgets `asker` if it has no requests. A slot may be on its way to one that has just left.
    fn forget_idle(&mut self, asker: &K) {
        let is_idle = |own: &Requests<K>| own.total == 0 && own.taken == 0;
        if self.askers.get(asker).is_some_and(is_idle)
            && let Some(requests) = self.askers.remove(asker)
            && !requests.waiting.is_empty()
        {
            // Without requests, the senders that are left have no receivers.
            self.order.retain(|other| other != asker);
        }
    }
}

// === impl Slot, Place ===

impl<K: Asker> Drop for Slot<K> {
    /// Gives the slot to the next ones.
    fn drop(&mut self) {
        let mut granted = Vec::new();
        {
            let mut state = self.state.lock();
            state.release(&self.asker);
            granted.extend(std::iter::from_fn(|| state.next()));
        }
        for (asker, grant) in granted {
            let state = Arc::clone(&self.state);
            // If the asker has left just now, the slot comes back and is dropped, as this one was.
            drop(grant.send(Self { state, asker }));
        }
    }
}

impl<K: Asker> Drop for Place<K> {
    fn drop(&mut self) {
        self.state.lock().leave(&self.asker);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;
    use std::time::Duration;

    use futures_util::FutureExt;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// How long a test waits at most.
    const MAX_WAIT: Duration = Duration::from_secs(10);

    fn queue(slots: usize, capacity: usize) -> FairQueue<&'static str> {
        FairQueue::new(slots, capacity)
    }

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        future.now_or_never()
    }

    #[test]
    fn one_asker_gets_half_and_a_new_one_always_a_place_that_is_free() {
        for (own, total, capacity, expected) in [
            (0, 0, 8, true),
            (3, 3, 8, true),
            (4, 4, 8, false),
            (0, 7, 8, true),
            (0, 8, 8, false),
            (1, 7, 8, false),
        ] {
            let found = may_take(own, capacity - total);
            assert_eq!(found, expected, "{own} of {total}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn askers_take_turns() {
        let queue = queue(1, 100);
        let first = queue.admit("many").await.expect("a free slot");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for asker in ["many", "many", "many", "few", "many", "other"] {
            let (queue, order) = (queue.clone(), Arc::clone(&order));
            waiting.push(Box::pin(async move {
                let permit = queue.admit(asker).await.expect("room");
                order.lock().push(asker);
                drop(permit);
            }));
            let pending = futures_util::poll!(waiting.last_mut().expect("just pushed"));
            assert!(pending.is_pending());
        }
        drop(first);
        futures_util::future::join_all(waiting).await;
        let order = order.lock();
        assert_eq!(*order, ["many", "few", "other", "many", "many", "many"]);
        let state = queue.state.lock();
        assert_eq!((state.free, state.total, state.askers.len()), (1, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn askers_with_slow_answers_leave_slots_for_the_others() {
        let queue = queue(16, 1_000);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (asker, expected) in [("a", 8), ("b", 4), ("c", 2), ("d", 1)] {
            let before = held.len();
            for _ in 0..20 {
                let mut question = Box::pin(queue.admit(asker));
                match futures_util::poll!(&mut question) {
                    Poll::Ready(permit) => held.push(permit.expect("room")),
                    Poll::Pending => waiting.push(question),
                }
            }
            assert_eq!(held.len() - before, expected, "{asker}");
        }
        assert!(now(queue.admit("other")).is_some_and(|permit| permit.is_ok()));
        // When the slow answers arrive, all questions are sent.
        drop(held);
        let permits = futures_util::future::join_all(waiting.into_iter().map(async |question| {
            drop(question.await.expect("room"));
        }));
        permits.await;
        let state = queue.state.lock();
        assert_eq!((state.free, state.total, state.askers.len()), (16, 0, 0));
        assert!(state.order.is_empty());
    }

    /// Random askers, which leave now and then before their question is sent.
    #[tokio::test(start_paused = true)]
    async fn a_random_queue_sends_every_question_that_is_not_given_up() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let slots = rng.random_range(1..8);
            let queue = queue(slots, 10_000);
            let mut questions = JoinSet::new();
            for _ in 0..200 {
                let asker = ["a", "b", "c", "d", "e"][rng.random_range(0..5)];
                let starts_after = Duration::from_millis(rng.random_range(0..1_000));
                let takes = Duration::from_millis(rng.random_range(0..30));
                let leaves_after = if rng.random_bool(0.3) {
                    Duration::from_millis(rng.random_range(0..30))
                } else {
                    MAX_WAIT
                };
                let queue = queue.clone();
                questions.spawn(async move {
                    sleep(starts_after).await;
                    let Ok(permit) = timeout(leaves_after, queue.admit(asker)).await else {
                        assert!(leaves_after < MAX_WAIT, "seed {seed}: {asker} waits");
                        return;
                    };
                    let _permit = permit.expect("room");
                    sleep(takes).await;
                });
            }
            while let Some(done) = questions.join_next().await {
                done.expect("no question waits in vain");
            }
            let state = queue.state.lock();
            let left = (state.free, state.total, state.askers.len());
            assert_eq!(left, (slots, 0, 0), "seed {seed}");
            assert!(state.order.is_empty(), "seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_given_up_blocks_no_other() {
        let queue = queue(1, 100);
        let first = queue.admit("a").await.expect("a free slot");
        let mut given_up = Box::pin(queue.admit("b"));
        assert!(futures_util::poll!(&mut given_up).is_pending());
        let mut next = Box::pin(queue.admit("c"));
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(given_up);
        drop(first);
        let next = now(next).expect("the slot").expect("room");
        // A slot that was granted, but not yet taken, goes to the next one too.
        let mut granted = Box::pin(queue.admit("d"));
        assert!(futures_util::poll!(&mut granted).is_pending());
        drop(next);
        drop(granted);
        assert!(now(queue.admit("e")).is_some_and(|permit| permit.is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded() {
        let queue = queue(1, 4);
        let held = queue.admit("a").await.expect("a free slot");
        let mut waits = Box::pin(queue.admit("a"));
        assert!(futures_util::poll!(&mut waits).is_pending());
        assert!(now(queue.admit("a")).is_some_and(|refused| refused.is_err()));
        drop(held);
        drop(now(waits).expect("the slot").expect("room"));
        assert!(now(queue.admit("a")).is_some_and(|permit| permit.is_ok()));
    }
}
