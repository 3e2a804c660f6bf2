//! The reflector as its owner sees it: what it is made of, how it is run, how it ends.

mod backoff;
mod config;
mod end;
mod error;
mod failures;
mod machine;
mod metrics;
mod recovery;
mod session;
mod signals;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::cache::Writer;
use crate::informer::WireShape;
use crate::upstream::ListerWatcher;

use machine::Machine;
use machine::State;

pub use backoff::Backoff;
pub use backoff::BackoffConfig;
pub use config::ReflectorConfig;
pub use end::ReflectorEnd;
pub use error::Cause;
pub use error::Error;
pub use metrics::ReflectorMetrics;
pub use signals::RelistHandle;
pub use signals::RelistRequests;
pub use signals::Signals;
pub use signals::relist_channel;

/// Keeps a cache equal to one resource upstream.
///
/// What it guarantees to the cache: the content is complete before the cache is ready; each change
/// is applied once and in order, whatever interrupts the watch; a watch is resumed only after
/// upstream was seen to have the history that was applied; and what upstream no longer allows is
/// no longer served, since [`Reflector::run`] closes the cache when it ends.
///
/// Logs carry no name: run it in a span that says which resource this is.
pub struct Reflector<L> {
    machine: Machine<L>,
    signals: Signals,
}

impl<L: ListerWatcher> Reflector<L> {
    /// Makes a reflector that does nothing until it is run.
    pub fn new(
        lister_watcher: L,
        writer: Writer,
        config: ReflectorConfig,
        signals: Signals,
    ) -> Self {
        Self {
            machine: Machine::new(lister_watcher, writer, config),
            signals,
        }
    }

    /// Counts into `metrics`, which an earlier reflector of the resource may have used.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<ReflectorMetrics>) -> Self {
        self.machine.metrics = metrics;
        self
    }

    /// Teaches `shape` what upstream's bookmarks look like.
    #[must_use]
    pub fn with_shape(mut self, shape: Arc<WireShape>) -> Self {
        self.machine.shape = Some(shape);
        self
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<ReflectorMetrics> {
        Arc::clone(&self.machine.metrics)
    }

    /// Works until it is told to stop, or upstream refuses for good; then closes the cache, which
    /// ends its watches cleanly. Dropping the future does the same.
    pub async fn run(self) -> ReflectorEnd {
        let Signals { stop, mut relists } = self.signals;
        let mut machine = self.machine;
        let work = async {
            let mut state = State::Starting;
            loop {
                match machine.step(state, &mut relists).await {
                    ControlFlow::Continue(next) => state = next,
                    ControlFlow::Break(ended) => return ended,
                }
            }
        };
        let ended = tokio::select! {
            biased;
            () = stop => ReflectorEnd::Stopped,
            ended = work => ended,
        };
        tracing::info!(?ended, "reflector ended");
        machine.writer.close();
        ended
    }
}
