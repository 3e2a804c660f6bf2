//! The reflector as its owner sees it: what it is made of, how it is run, how it ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::api::Status;
use crate::cache::Writer;
use crate::upstream::ListerWatcher;

use super::BackoffConfig;
use super::ReflectorMetrics;
use super::Signals;
use super::WireShape;
use super::machine::Machine;
use super::machine::State;

/// How a [`Reflector`] goes about its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// Whether to try watch-list before LIST. Default is true.
    pub watch_list: bool,
    /// Items a page of a LIST; 0 asks for all at once. Default is 500.
    pub page_size: u32,
    /// A watch that brings no frame for this long is given up; bookmarks come each minute.
    /// Default is 90 s.
    pub silence_limit: Duration,
    /// Limit for the answer to begin of a watch, and for the proof before one. Default is 60 s.
    pub call_timeout: Duration,
    /// Limit for a page of a LIST, body included. Default is 5 min.
    pub list_timeout: Duration,
    /// Whether a watch that upstream ends well before its deadline is followed by a relist: so the
    /// API server tells that a custom resource's schema changed, after which objects may read
    /// differently at the same resource version. Default is false.
    pub relist_on_early_end: bool,
    /// How long upstream may refuse (403, 404, 406) what it allowed before until the reflector ends.
    /// Default is zero.
    pub refusal_patience: Duration,
    /// Waits after failures.
    pub backoff: BackoffConfig,
    /// Makes jitter repeatable; `None` (the default) takes it from the system.
    pub seed: Option<u64>,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            watch_list: true,
            page_size: 500,
            silence_limit: Duration::from_secs(90),
            call_timeout: Duration::from_secs(60),
            list_timeout: Duration::from_secs(300),
            relist_on_early_end: false,
            refusal_patience: Duration::ZERO,
            backoff: BackoffConfig::default(),
            seed: None,
        }
    }
}

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

/// Why [`Reflector::run`] ended.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
    /// Upstream does not allow to list or watch (403).
    #[error("forbidden: {}", .0.message)]
    Forbidden(Box<Status>),
    /// Upstream no longer has the resource (404): all its objects were deleted before that.
    #[error("gone: {}", .0.message)]
    Gone(Box<Status>),
    /// Upstream does not have the resource in this wire format (406).
    #[error("no such format: {}", .0.message)]
    NotAcceptable(Box<Status>),
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
    pub async fn run(self) -> Ended {
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
            () = stop => Ended::Stopped,
            ended = work => ended,
        };
        tracing::info!(?ended, "reflector ended");
        machine.writer.close();
        ended
    }
}
