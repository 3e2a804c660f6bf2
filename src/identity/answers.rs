//! Remembers definite answers to questions, and asks each question once.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::shutdown::Shutdown;

/// The answer to a question that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<V> {
    /// It holds for all callers with the same question, for this long.
    Definite(V, Duration),
    /// It holds only for the caller that asked. The next caller asks again.
    OfAsker(V),
}

/// Definite answers by question. Callers with the same question wait for one of them, which asks it;
/// if the answer is not definite, the next one asks.
pub(super) struct Answers<Q, V> {
    entries: DashMap<Q, Arc<Entry<V>>>,
    /// The number of entries above which those without a valid answer are dropped.
    capacity: usize,
    shutdown: Shutdown,
}

struct Entry<V> {
    known: Mutex<Option<Known<V>>>,
    /// Locked while a caller asks.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone)]
struct Known<V> {
    value: V,
    until: Instant,
}

impl<V: Clone> Entry<V> {
    fn new() -> Self {
        Self {
            known: Mutex::new(None),
            asking: Arc::default(),
        }
    }

    fn known(&self) -> Option<V> {
        let known = self.known.lock();
        let known = known.as_ref().filter(|known| known.until > Instant::now());
        known.map(|known| known.value.clone())
    }
}

impl<Q, V> Answers<Q, V>
where
    Q: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// No answers. Above `capacity` entries, expired ones are dropped; if none has expired, all are.
    pub(super) fn new(capacity: usize, shutdown: Shutdown) -> Self {
        Self {
            entries: DashMap::new(),
            capacity,
            shutdown,
        }
    }

    /// The valid answer to `question`, if there is one.
    pub(super) fn known(&self, question: &Q) -> Option<V> {
        self.entries.get(question)?.known()
    }

    /// The valid answer to `question`, or the one that `ask` returns.
    ///
    /// Callers with equal questions wait for each other. `ask` runs in a task of its own, so a
    /// caller that leaves cancels nothing. Cancel safe. Returns `None` if kubefan shuts
    /// down before the answer.
    pub(super) async fn get<F>(&self, question: &Q, ask: impl FnOnce() -> F) -> Option<V>
    where
        F: Future<Output = Answer<V>> + Send + 'static,
    {
        let entry = self.entry(question);
        if let Some(value) = entry.known() {
            return Some(value);
        }
        let turn = Arc::clone(&entry.asking).lock_owned().await;
        if let Some(value) = entry.known() {
            return Some(value);
        }
        let asked = ask();
        let (answered, answer) = oneshot::channel();
        self.shutdown.spawn_background(async move {
            // The validity counts from the question, because the answer may be that old.
            let asked_at = Instant::now();
            let answer = asked.await;
            let value = match answer {
                Answer::Definite(value, validity) => {
                    let until = asked_at + validity;
                    let known = Known { value, until };
                    entry.known.lock().insert(known).value.clone()
                }
                Answer::OfAsker(value) => value,
            };
            drop(turn);
            // Fails if the caller has left; the answer may be remembered nevertheless.
            answered.send(value).ok();
        });
        answer.await.ok()
    }

    /// Remembers an answer that was learnt in another way, for a question of `asked_at`.
    pub(super) fn learn(&self, question: &Q, value: V, asked_at: Instant, validity: Duration) {
        let until = asked_at + validity;
        *self.entry(question).known.lock() = Some(Known { value, until });
    }

    /// The number of entries, also of those whose answer has expired.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn entry(&self, question: &Q) -> Arc<Entry<V>> {
        if let Some(entry) = self.entries.get(question) {
            return Arc::clone(&entry);
        }
        if self.entries.len() >= self.capacity {
            self.drop_expired();
        }
        let entry = self.entries.entry(question.clone());
        Arc::clone(&entry.or_insert_with(|| Arc::new(Entry::new())))
    }

    /// Drops the entries without a valid answer that no caller waits for. If that frees less than an
    /// eighth, drops all that no caller waits for: more questions are asked than can be remembered.
    fn drop_expired(&self) {
        let is_awaited = |entry: &Arc<Entry<V>>| Arc::strong_count(entry) > 1;
        self.entries
            .retain(|_, entry| is_awaited(entry) || entry.known().is_some());
        if self.entries.len() > self.capacity / 8 * 7 {
            self.entries.retain(|_, entry| is_awaited(entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering;

    use futures_util::future::join_all;
    use tokio::sync::oneshot;
    use tokio::time::advance;

    use super::*;
    use crate::shutdown::Config;

    const VALIDITY: Duration = Duration::from_secs(10);

    fn answers<Q, V>(capacity: usize) -> Answers<Q, V>
    where
        Q: Clone + Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        Answers::new(capacity, Shutdown::new(Config::default()))
    }

    fn definite(value: u32) -> impl Future<Output = Answer<u32>> + Send {
        std::future::ready(Answer::Definite(value, VALIDITY))
    }

    #[tokio::test(start_paused = true)]
    async fn a_definite_answer_is_shared_until_it_expires() {
        let answers = answers(8);
        let asked = Arc::new(AtomicU32::new(0));
        let ask = || {
            let asked = Arc::clone(&asked);
            async move {
                tokio::task::yield_now().await;
                Answer::Definite(asked.fetch_add(1, Ordering::Relaxed), VALIDITY)
            }
        };
        let all = join_all((0..100).map(|_| answers.get(&"q", ask))).await;
        assert_eq!(all, [Some(0); 100]);
        advance(VALIDITY - Duration::from_millis(1)).await;
        assert_eq!(answers.known(&"q"), Some(0));
        assert_eq!(answers.get(&"q", ask).await, Some(0));
        advance(Duration::from_millis(1)).await;
        assert_eq!(answers.known(&"q"), None);
        assert_eq!(answers.get(&"q", ask).await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_the_asker_is_for_nobody_else() {
        let answers = answers(8);
        let ask = |value| move || std::future::ready(Answer::OfAsker(value));
        let all = join_all((0..3).map(|value| answers.get(&"q", ask(value)))).await;
        assert_eq!(all, [Some(0), Some(1), Some(2)]);
        assert_eq!(answers.known(&"q"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_arrives_although_the_asker_has_left() {
        let answers = Arc::new(answers(8));
        let (answer, answered) = oneshot::channel();
        let ask = || async move { Answer::Definite(answered.await.expect("sent"), VALIDITY) };
        let mut first = Box::pin(answers.get(&"q", ask));
        assert!(futures_util::poll!(&mut first).is_pending());
        drop(first);
        let mut second = Box::pin(answers.get(&"q", || definite(0)));
        assert!(
            futures_util::poll!(&mut second).is_pending(),
            "it must not ask again"
        );
        answer.send(7).expect("the task waits");
        assert_eq!(second.await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_answers_is_bounded() {
        let answers = answers(64);
        for question in 0..1000 {
            answers.get(&question, || definite(0)).await;
            assert!(answers.len() <= 64, "{} after {question}", answers.len());
        }
        assert_eq!(answers.known(&999), Some(0));
    }
}
