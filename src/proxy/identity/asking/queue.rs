//! Lets a few questions to the API server be in flight. The others wait in a bounded queue.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use kubefan_core::concurrency::{Asker, FairQueue, Full, Permit};
use prometheus::{IntCounter, IntGauge};
use tokio::time::timeout;

/// How long a question may wait in the queue.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A queue of questions. Askers of kind `K` take turns, so an asker with many questions delays the
/// others by one question each. One asker has at most half of the questions in flight, so that its
/// slow answers do not delay the others. Clones share the queue.
#[derive(Clone)]
pub(in crate::identity) struct AskQueue<K: Asker> {
    queue: FairQueue<K>,
    metrics: QueueMetrics,
}

/// The number of questions that wait in a queue, and the number of those that it refused.
#[derive(Clone)]
pub(in crate::identity) struct QueueMetrics {
    pub(in crate::identity) waiting: IntGauge,
    pub(in crate::identity) refused: IntCounter,
}

impl<K: Asker> AskQueue<K> {
    /// Creates a queue that lets `in_flight` questions be sent concurrently. At most `capacity`
    /// questions may wait or be in flight.
    pub(in crate::identity) fn new(
        in_flight: usize,
        capacity: usize,
        metrics: QueueMetrics,
    ) -> Self {
        Self {
            queue: FairQueue::new(in_flight, capacity),
            metrics,
        }
    }

    /// Waits until a question of `asker` may be sent. The question counts as in flight until the
    /// permit is dropped. Cancel safe: the question then leaves the queue.
    ///
    /// # Errors
    /// [`Full`], which is counted, if the queue is too full for this asker, or the question has
    /// waited for 10 s.
    pub(in crate::identity) async fn admit(&self, asker: K) -> Result<Permit<K>, Full> {
        let mut admitted = pin!(self.queue.admit(asker));
        let admitted = match admitted.as_mut().now_or_never() {
            Some(admitted) => admitted,
            None => {
                self.metrics.waiting.inc();
                let _waiting = Waiting(&self.metrics.waiting);
                timeout(MAX_WAIT, admitted).await.unwrap_or(Err(Full))
            }
        };
        admitted.inspect_err(|_| self.metrics.refused.inc())
    }
}

/// A waiting question that was counted.
struct Waiting<'a>(&'a IntGauge);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_and_refused_questions_are_counted() {
        let metrics = QueueMetrics {
            waiting: IntGauge::new("waiting", "waiting").expect("a gauge"),
            refused: IntCounter::new("refused", "refused").expect("a counter"),
        };
        let queue = AskQueue::new(1, 3, metrics.clone());
        let first = queue.admit("a").await.expect("a free slot");
        assert_eq!(metrics.waiting.get(), 0);
        let mut second = pin!(queue.admit("a"));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!((metrics.waiting.get(), metrics.refused.get()), (1, 0));
        // One asker may not take all places in the queue.
        assert_eq!(queue.admit("a").await.err(), Some(Full));
        assert_eq!((metrics.waiting.get(), metrics.refused.get()), (1, 1));
        advance(MAX_WAIT).await;
        assert_eq!(second.await.err(), Some(Full));
        assert_eq!((metrics.waiting.get(), metrics.refused.get()), (0, 2));
        drop(first);
        assert!(queue.admit("b").await.is_ok());
    }
}
