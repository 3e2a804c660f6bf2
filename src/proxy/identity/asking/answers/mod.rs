//! Remembers definite answers to questions, and limits how many callers concurrently ask equal
//! questions.

mod entry;
mod shard;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use entry::{Entry, Known};
use kubefan_core::shutdown::Shutdown;
use parking_lot::RwLock;
use shard::{Shard, UsefulFor, Weights};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// The number of shards into which answers are divided. Each shard has its own lock. Room is made
/// in one shard at a time, so that making room never causes a long pause.
const SHARDS: usize = 64;
/// How often one call asks at most, if each answer is already too old when it arrives.
const MAX_ATTEMPTS: usize = 3;

/// The answer to a question that was asked, and how long it holds for all callers with an equal
/// question. With `None` it is not definite: it holds only for the caller that asked, and the next
/// caller asks again.
pub(in crate::identity) type Answer<V> = (V, Option<Duration>);

/// Definite answers by question. Of the callers with equal questions, one asks, and the others wait
/// for its answer. After each answer that is not definite, one more of these callers may ask
/// concurrently, up to eight.
pub(in crate::identity) struct Answers<Q, V> {
    shards: Box<[Shard<Q, V>]>,
    /// How long an answer is of use after it has expired.
    useful_for: Box<UsefulFor<V>>,
    weights: Weights<Q, V>,
    hasher: RandomState,
    shutdown: Shutdown,
}

impl<Q, V> Answers<Q, V>
where
    Q: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates an empty cache of answers, of about `capacity` entries with about `max_weight` bytes
    /// together. `weights` returns the bytes that are stored for a question and for an answer.
    /// Above the limits, the entries that are of use for the shortest time are dropped.
    /// `useful_for` returns how long an answer is of use after it has expired.
    pub(in crate::identity) fn new(
        capacity: usize,
        (max_weight, weights): (usize, Weights<Q, V>),
        useful_for: impl Fn(&V) -> Duration + Send + Sync + 'static,
        shutdown: Shutdown,
    ) -> Self {
        let shard = || Shard {
            entries: RwLock::default(),
            weight: Arc::default(),
            capacity: capacity.div_ceil(SHARDS),
            max_weight: max_weight.div_ceil(SHARDS),
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            useful_for: Box::new(useful_for),
            weights,
            hasher: RandomState::new(),
            shutdown,
        }
    }

    /// The bytes of an entry, without what its question and its answer hold outside of themselves:
    /// the entry, what it points to, and its part of a table that is between half and completely
    /// full.
    pub(in crate::identity) const ENTRY_BYTES: usize = 2 * size_of::<(Q, Arc<Entry<V>>)>()
        + size_of::<Entry<V>>()
        + size_of::<Semaphore>()
        + 4 * size_of::<usize>();

    /// Returns the weight of all entries.
    pub(in crate::identity) fn weight(&self) -> usize {
        self.shards.iter().map(Shard::weight).sum()
    }

    /// Returns the valid answer to `question`, if there is one. For an answer's value, `earliest`
    /// returns the moment before which the answer must not have been asked for.
    pub(in crate::identity) fn known(
        &self,
        question: &Q,
        earliest: impl FnOnce(&V) -> Option<Instant>,
    ) -> Option<V> {
        let entries = self.shard(question).entries.read();
        entries.get(question)?.known(earliest)
    }

    /// Returns the last definite answer to `question`, even if it is not valid any more, and until
    /// when it is or was valid.
    pub(in crate::identity) fn last(&self, question: &Q) -> Option<(V, Instant)> {
        let entries = self.shard(question).entries.read();
        let known = entries.get(question)?.known.read();
        let last = |known: &Known<V>| (known.value.clone(), known.until);
        known.as_ref().map(last)
    }

    /// Returns the last definite answer to `question` if it was asked for within `age`, even if it
    /// is not valid any more. `earliest` is as in [`known`](Self::known).
    pub(in crate::identity) fn last_within(
        &self,
        question: &Q,
        age: Duration,
        earliest: impl FnOnce(&V) -> Option<Instant>,
    ) -> Option<V> {
        let entries = self.shard(question).entries.read();
        let entry = entries.get(question)?;
        entry.last_if(|known| known.asked_at.elapsed() < age && known.is_current(earliest))
    }

    /// Returns the valid answer to `question`, or the one that `ask` returns.
    ///
    /// For an answer's value, `earliest` returns the moment before which the answer must not have
    /// been asked for; the moment may become later with time. `earliest` also applies to the
    /// answers that this call waits for, including the answer to its own question. An answer that
    /// is too old when it arrives is asked for again; this call asks three times at most.
    ///
    /// Callers with equal questions wait for each other. `ask` runs in a separate task, so that a
    /// caller that leaves cancels nothing. Cancel safe. Returns `None` if kubefan shuts down before
    /// the answer arrives, or if all answers were too old.
    pub(in crate::identity) async fn get<F>(
        &self,
        question: &Q,
        earliest: impl Fn(&V) -> Option<Instant>,
        ask: impl Fn() -> F,
    ) -> Option<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        if let Some(value) = self.known(question, &earliest) {
            return Some(value);
        }
        let entry = self.entry(question);
        for _ in 0..MAX_ATTEMPTS {
            // Fails only if the semaphore is closed, which it never is.
            let turn = Arc::clone(&entry.asking).acquire_owned().await.ok()?;
            if let Some(value) = entry.known(&earliest) {
                entry.narrow(turn);
                return Some(value);
            }
            let answer = self.asked(Arc::clone(&entry), turn, ask());
            let known = answer.await.ok()?;
            if known.is_current(&earliest) {
                return Some(known.value);
            }
        }
        None
    }

    /// Waits for the answer `asked` in a separate task, and remembers the answer if it is definite.
    fn asked(
        &self,
        entry: Arc<Entry<V>>,
        turn: OwnedSemaphorePermit,
        asked: impl Future<Output = Answer<V>> + Send + 'static,
    ) -> oneshot::Receiver<Known<V>> {
        let (answered, answer) = oneshot::channel();
        self.shutdown.spawn_background(async move {
            // The validity counts from the question, because the answer may be that old.
            let asked_at = Instant::now();
            let (value, validity) = asked.await;
            let known = Known::new(value, asked_at, validity.unwrap_or_default());
            if validity.is_some() {
                entry.remember(known.clone());
                entry.narrow(turn);
            } else {
                entry.widen(turn);
            }
            // Fails if the caller has left; the answer may be remembered nevertheless.
            answered.send(known).ok();
        });
        answer
    }

    /// Remembers an answer to `question` that was learnt in another way, as if it had been asked
    /// for at `asked_at`. Does nothing if the remembered answer was asked for later.
    pub(in crate::identity) fn learn(
        &self,
        question: &Q,
        value: V,
        asked_at: Instant,
        validity: Duration,
    ) {
        let known = Known::new(value, asked_at, validity);
        self.entry(question).remember(known);
    }

    /// Notes that the remembered answer to `question` was still right at `asked_at`, if `is_such`
    /// returns true for it. The answer expires as before.
    pub(in crate::identity) fn confirm(
        &self,
        question: &Q,
        asked_at: Instant,
        is_such: impl FnOnce(&V) -> bool,
    ) {
        let entries = self.shard(question).entries.read();
        if let Some(entry) = entries.get(question) {
            let mut known = entry.known.write();
            if let Some(known) = known.as_mut().filter(|known| is_such(&known.value)) {
                known.asked_at = known.asked_at.max(asked_at);
            }
        }
    }

    /// Forgets the answer to `question` if `is_wrong` returns true for it.
    pub(in crate::identity) fn forget(&self, question: &Q, is_wrong: impl FnOnce(&V) -> bool) {
        if let Some(entry) = self.shard(question).entries.read().get(question) {
            let mut known = entry.known.write();
            if known.as_ref().is_some_and(|known| is_wrong(&known.value)) {
                *known = None;
                entry.weight.set_answer(0);
            }
        }
    }

    /// Returns the number of entries, including those with an expired answer.
    #[cfg(test)]
    pub(in crate::identity) fn len(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.entries.read().len()).sum()
    }

    fn entry(&self, question: &Q) -> Arc<Entry<V>> {
        let shard = self.shard(question);
        shard.entry(question, &*self.useful_for, self.weights)
    }

    fn shard(&self, question: &Q) -> &Shard<Q, V> {
        let hash = self.hasher.hash_one(question);
        // The hash has no pattern, so its lowest bits are as good as any others.
        let index = hash as usize % self.shards.len();
        &self.shards[index]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use kubefan_core::shutdown::Config;
    use parking_lot::Mutex;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use tokio::sync::oneshot;
    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep, timeout};

    use super::entry::MAX_ASKERS;
    use super::*;

    const VALIDITY: Duration = Duration::from_secs(10);

    fn answers<Q, V>(capacity: usize) -> Answers<Q, V>
    where
        Q: Clone + Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        answers_with(capacity, (usize::MAX, (|_| 0, |_| 0)), |_| Duration::ZERO)
    }

    fn answers_with<Q, V>(
        capacity: usize,
        weights: (usize, Weights<Q, V>),
        useful_for: impl Fn(&V) -> Duration + Send + Sync + 'static,
    ) -> Answers<Q, V>
    where
        Q: Clone + Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let shutdown = Shutdown::new(Config::default());
        Answers::new(capacity, weights, useful_for, shutdown)
    }

    /// Answers may have been asked for at any time.
    fn always<V>(_: &V) -> Option<Instant> {
        None
    }

    fn definite(value: u32) -> impl Future<Output = Answer<u32>> + Send {
        std::future::ready((value, Some(VALIDITY)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_definite_answer_is_shared_until_it_expires() {
        let answers = answers(8);
        let asked = Arc::new(AtomicU32::new(0));
        let ask = || {
            let asked = Arc::clone(&asked);
            async move {
                tokio::task::yield_now().await;
                (asked.fetch_add(1, Ordering::Relaxed), Some(VALIDITY))
            }
        };
        let all = join_all((0..100).map(|_| answers.get(&"q", always, ask))).await;
        assert_eq!(all, [Some(0); 100]);
        advance(VALIDITY - Duration::from_millis(1)).await;
        assert_eq!(answers.known(&"q", always), Some(0));
        assert_eq!(answers.get(&"q", always, ask).await, Some(0));
        advance(Duration::from_millis(1)).await;
        assert_eq!(answers.known(&"q", always), None);
        assert_eq!(answers.get(&"q", always, ask).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outdated_answer_does_not_count() {
        let answers = answers(8);
        answers.get(&"q", always, || definite(0)).await;
        let asked_at = Instant::now();
        assert_eq!(answers.known(&"q", |_| Some(asked_at)), Some(0));
        let later = asked_at + Duration::from_millis(1);
        assert_eq!(answers.known(&"q", |_| Some(later)), None);
        advance(Duration::from_millis(1)).await;
        let again = answers.get(&"q", |_| Some(later), || definite(1));
        assert_eq!(again.await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_answer_may_be_older_than_it_is_valid() {
        let answers = answers(8);
        answers.get(&"q", always, || definite(0)).await;
        let asked_at = Instant::now();
        advance(6 * VALIDITY).await;
        assert_eq!(answers.known(&"q", always), None);
        let last = |age, earliest: Instant| answers.last_within(&"q", age, |_| Some(earliest));
        assert_eq!(last(7 * VALIDITY, asked_at), Some(0));
        assert_eq!(last(6 * VALIDITY, asked_at), None);
        assert_eq!(last(7 * VALIDITY, Instant::now()), None);
    }

    /// Simulates random callers of one question with an answer that changes now and then. An answer
    /// takes up to two seconds, and shows what was true when it was asked for.
    #[tokio::test(start_paused = true)]
    async fn no_caller_gets_an_answer_that_was_asked_for_before_a_change() {
        let millis = Duration::from_millis;
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let answers = Arc::new(answers::<_, Instant>(8));
            let changed = Arc::new(Mutex::new(None));
            let (asked, outdated) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
            let mut callers = JoinSet::new();
            for _ in 0..60 {
                sleep(millis(rng.random_range(0..200))).await;
                if rng.random_bool(0.2) {
                    *changed.lock() = Some(Instant::now());
                }
                let delay = millis(rng.random_range(0..2_000));
                let is_definite = rng.random_bool(0.9);
                let leaves_after = if rng.random_bool(0.1) {
                    millis(rng.random_range(0..1_000))
                } else {
                    millis(1_000_000)
                };
                let (answers, changed) = (Arc::clone(&answers), Arc::clone(&changed));
                let (asked, outdated) = (Arc::clone(&asked), Arc::clone(&outdated));
                callers.spawn(async move {
                    let earliest = |_: &Instant| *changed.lock();
                    let ask = || {
                        asked.fetch_add(1, Ordering::Relaxed);
                        async move {
                            let asked_at = Instant::now();
                            sleep(delay).await;
                            (asked_at, is_definite.then_some(VALIDITY))
                        }
                    };
                    let got = timeout(leaves_after, answers.get(&"q", earliest, ask)).await;
                    match got {
                        Ok(Some(asked_at)) => {
                            assert!(Some(asked_at) >= *changed.lock(), "seed {seed}");
                        }
                        Ok(None) => {
                            outdated.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => {}
                    }
                });
            }
            while let Some(done) = callers.join_next().await {
                done.expect("no caller fails");
            }
            // Callers still share: not each of them asks.
            assert!(asked.load(Ordering::Relaxed) < 60, "seed {seed}");
            assert!(outdated.load(Ordering::Relaxed) < 10, "seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_asker_is_for_nobody_else() {
        let answers = answers(8);
        let ask = |value| move || std::future::ready((value, None));
        let all = join_all((0..3).map(|value| answers.get(&"q", always, ask(value)))).await;
        assert_eq!(all, [Some(0), Some(1), Some(2)]);
        assert_eq!(answers.known(&"q", always), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_arrives_although_the_asker_has_left() {
        let answers = Arc::new(answers(8));
        let (answer, answered) = oneshot::channel();
        let answered = answered.shared();
        let ask = || {
            let answered = answered.clone();
            async move { (answered.await.expect("sent"), Some(VALIDITY)) }
        };
        let mut first = Box::pin(answers.get(&"q", always, ask));
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        let mut second = Box::pin(answers.get(&"q", always, || definite(0)));
        assert!(
            futures_util::poll!(&mut second).is_pending(),
            "it must not ask again"
        );
        answer.send(7).expect("the task waits");
        assert_eq!(second.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_ask_together_after_an_answer_that_is_not_definite() {
        let answers = Arc::new(answers(8));
        let (asking, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let ask = || {
            let (asking, most) = (Arc::clone(&asking), Arc::clone(&most));
            async move {
                most.fetch_max(
                    asking.fetch_add(1, Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
                asking.fetch_sub(1, Ordering::Relaxed);
                (0, None)
            }
        };
        let began = Instant::now();
        let all = join_all((0..31).map(|_| answers.get(&"q", always, ask))).await;
        assert_eq!(all, [Some(0); 31]);
        // One after another they would take 31 s. Here 1, 2, 4, 8, 8 and 8 ask in turn.
        assert_eq!(began.elapsed(), Duration::from_secs(6));
        assert_eq!(most.load(Ordering::Relaxed), MAX_ASKERS as u32);
        // After a definite answer, one asks for all again.
        let last = Arc::new(AtomicU32::new(0));
        for round in 1..=2 {
            let ask = || {
                let last = Arc::clone(&last);
                async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    (last.fetch_add(1, Ordering::Relaxed), Some(VALIDITY))
                }
            };
            let all = join_all((0..31).map(|_| answers.get(&"q", always, ask))).await;
            assert!(all.iter().all(Option::is_some));
            let asked = last.swap(0, Ordering::Relaxed);
            assert_eq!(asked, if round == 1 { MAX_ASKERS as u32 } else { 1 });
            advance(VALIDITY).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_question_does_not_replace_a_newer_answer() {
        let answers = answers(8);
        let before = Instant::now();
        advance(Duration::from_secs(1)).await;
        answers.get(&"q", always, || definite(1)).await;
        answers.learn(&"q", 0, before, VALIDITY);
        assert_eq!(answers.known(&"q", always), Some(1));
        answers.learn(&"q", 2, Instant::now(), VALIDITY);
        assert_eq!(answers.known(&"q", always), Some(2));
        answers.forget(&"q", |value| *value == 1);
        assert_eq!(answers.known(&"q", always), Some(2));
        advance(VALIDITY).await;
        assert_eq!(answers.last(&"q"), Some((2, Instant::now())));
        answers.learn(&"q", 3, Instant::now(), Duration::ZERO);
        assert_eq!(answers.known(&"q", always), None);
        assert_eq!(answers.last(&"q"), Some((3, Instant::now())));
        answers.forget(&"q", |value| *value == 3);
        assert_eq!(answers.last(&"q"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_answers_is_bounded() {
        let answers = answers(8 * SHARDS);
        for question in 0..5_000 {
            answers.get(&question, always, || definite(0)).await;
            assert!(
                answers.len() <= 8 * SHARDS,
                "{} after {question}",
                answers.len()
            );
        }
        assert_eq!(answers.known(&4_999, always), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_answers_are_bounded() {
        let max = 1 << 20;
        let weights: Weights<i32, String> = (|_| 10, String::len);
        let answers = answers_with(100_000, (max, weights), |_| Duration::ZERO);
        for number in 0..3_000 {
            answers.learn(&number, "x".repeat(1_000), Instant::now(), VALIDITY);
        }
        let (weight, count) = (answers.weight(), answers.len());
        assert_eq!(weight, count * 1_010);
        // Each shard keeps at least half of its part, less the answer that would exceed it.
        assert!(
            weight > max / 2 - SHARDS * 1_010 && weight <= max + SHARDS * 1_010,
            "{weight}"
        );
        // A shorter answer takes the place of a longer one.
        answers.learn(&2_999, "y".to_owned(), Instant::now(), VALIDITY);
        assert_eq!(answers.weight(), weight - 999);
        answers.forget(&2_999, |_| true);
        assert_eq!(answers.weight(), weight - 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_questions_are_bounded() {
        let max = 1 << 20;
        let weights: Weights<String, u32> = (String::len, |_| 0);
        let answers = answers_with(100_000, (max, weights), |_| Duration::ZERO);
        let weight = || {
            let shards = answers.shards.iter();
            let (mut counted, mut real) = (0, 0);
            for shard in shards {
                let entries = shard.entries.read();
                counted += shard.weight();
                real += entries.keys().map(String::len).sum::<usize>();
            }
            assert_eq!(counted, real);
            real
        };
        for number in 0..3_000 {
            // Long and short questions.
            let question = format!("{number}{}", "x".repeat(number % 7 * 500));
            answers.get(&question, always, || definite(0)).await;
            // Entries that expire at one time are dropped together.
            tokio::time::advance(Duration::from_micros(100)).await;
            if number % 100 == 99 {
                // A shard may exceed its limit by its last question.
                let weight = weight();
                assert!(weight <= max + SHARDS * 3_004, "{weight}");
            }
        }
        assert!(weight() > max / 2);
        assert!(answers.len() < 1_500);
        let last = format!("2999{}", "x".repeat(2_999 % 7 * 500));
        assert_eq!(answers.known(&last, always), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_of_use_for_longest_is_kept() {
        // An answer of 1 is of use for longer than it is valid. A shard has room for far more than
        // its share of 100 answers, however the hashes fall.
        let weights: Weights<i32, u32> = (|_| 0, |_| 0);
        let useful_for = |value: &u32| *value * 100 * VALIDITY;
        let answers = answers_with(32 * SHARDS, (usize::MAX, weights), useful_for);
        for question in 0..100 {
            answers.get(&question, always, || definite(1)).await;
        }
        advance(2 * VALIDITY).await;
        for question in 100..20_000 {
            answers.get(&question, always, || definite(0)).await;
        }
        let kept = (0..100).filter(|question| answers.last(question).is_some());
        assert_eq!(kept.count(), 100);
        // Many more than fit drop older ones.
        advance(2 * VALIDITY).await;
        for question in 20_000..30_000 {
            answers.get(&question, always, || definite(1)).await;
        }
        assert!((0..100).all(|question| answers.last(&question).is_none()));
        assert!(answers.len() <= 32 * SHARDS);
        assert_eq!(answers.known(&29_999, always), Some(1));
    }
}
