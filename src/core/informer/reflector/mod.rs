//! The reflector: the task that makes one cache follow one resource upstream.
//!
//! `machine.rs` is the state machine. Each step makes at most one call, or takes the frames of one
//! watch until it ends:
//!
//! ```text
//! Starting ─┬─► Collecting (watch-list) ──────► Watching
//!           └─► Listing (pages) ─► Opening ───► Watching
//!
//! after a failure or a relist request, at once or after BackingOff:
//!   resume ────────────► Proving ─► Opening ──► Watching
//!   relist, new epoch ─► Starting
//!   LIST ──────────────► Listing
//! ```
//!
//! - **Start.** The reflector tries a watch-list first, and falls back to LIST and WATCH if
//!   upstream does not support it. Objects are collected in a [`Relist`](crate::cache::Relist) and
//!   reach the cache only when the list is complete
//!   (`a_watch_list_without_its_end_bookmark_is_discarded`). The relist becomes the first content
//!   of the cache, or the writer appends the difference to the event log.
//! - **Watch.** Each event goes to the writer, which is owned by this task alone. Events that have
//!   arrived together cause one wake (`changes_that_arrive_together_wake_a_stream_once`).
//! - **Recovery.** `recovery.rs` is a set of pure functions: they map the cause of a failure to an
//!   action and a delay, which `machine/recovering.rs` carries out. A broken watch is resumed, an
//!   expired watch is relisted, and retries wait with a growing backoff.
//! - **Resume.** Before a watch is resumed, upstream must answer with a current version that is not
//!   below the applied one (`a_watch_is_never_resumed_unproven`). A lower version means that etcd
//!   was restored: the cache starts a new epoch at once, and serves nothing until the next list is
//!   complete (`another_history_starts_a_new_epoch`,
//!   `the_old_history_is_not_served_while_the_new_one_is_fetched`).
//! - **Relist requests.** A relist request is answered by a list that begins after it
//!   (`a_relist_request_during_a_list_causes_another_list`).
//! - **Early ends.** A watch that upstream ended early, as an API server does when a custom
//!   resource was redefined or when the API server stops, is resumed. A hook is called, and may
//!   request a relist (`an_early_end_is_reported_and_the_watch_is_resumed`).
//! - **Watch-lists.** What one reflector learns about upstream's watch-lists holds for all that
//!   share it (`reflectors_of_one_upstream_learn_from_each_other_that_it_has_no_watch_list`).
//! - **End.** 403, 404 and 406 end the reflector. A ready cache stays in use for some seconds
//!   before (`a_ready_cache_survives_a_short_refusal`). The cache is closed when the reflector ends
//!   (`a_final_answer_ends_the_reflector_and_closes_the_cache`).
//!
//! `after_any_faults_the_cache_and_its_clients_equal_upstream` checks all of this against a random
//! upstream.

mod backoff;
mod config;
mod end;
mod error;
mod failures;
mod machine;
mod metrics;
mod recovery;
mod recovery_log;
mod session;
mod signals;
#[cfg(test)]
mod tests;
mod watch_lists;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use backoff::{Backoff, BackoffConfig};
pub use config::ReflectorConfig;
pub use end::ReflectorEnd;
pub use error::{Cause, Error};
use machine::{Machine, State};
pub(in crate::informer) use metrics::RefusedLists;
pub use metrics::{Activity, ReflectorMetrics};
pub(in crate::informer) use recovery_log::RecoveryLog;
pub use recovery_log::{Interruption, RecentRecoveries, RecoveryEnd, RecoveryRecord};
pub use signals::{RelistHandle, RelistReason, RelistRequests, Signals, relist_channel};
pub(in crate::informer) use watch_lists::WatchLists;

use crate::api::Resource;
use crate::cache::Writer;
use crate::informer::hooks::ResourceHooks;
use crate::informer::{Hooks, WireShape};
use crate::upstream::ListerWatcher;

/// Makes a cache follow one resource upstream.
///
/// It guarantees to readers of the cache:
///
/// - The content is complete before the cache is ready.
/// - Each change is applied once and in order, even if the watch was interrupted.
/// - A watch is resumed only after upstream was seen to have the history that was applied.
/// - When upstream no longer allows the resource, the cache is closed: [`Reflector::run`] closes it
///   when it ends.
///
/// Log lines do not name the resource, so run the reflector in a span that does.
pub struct Reflector<L> {
    machine: Machine<L>,
    signals: Signals,
}

impl<L: ListerWatcher> Reflector<L> {
    /// Creates a reflector that makes no call until [`Reflector::run`].
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

    /// Makes the reflector add to `metrics` instead of to new counters.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<ReflectorMetrics>) -> Self {
        self.machine.metrics = metrics;
        self
    }

    /// Makes the reflector update `shape` from the bookmarks that upstream sends.
    #[must_use]
    pub fn with_shape(mut self, shape: Arc<WireShape>) -> Self {
        self.machine.shape = Some(shape);
        self
    }

    /// Makes the reflector call `hooks`, of the resource that it follows.
    #[must_use]
    pub fn with_hooks(mut self, hooks: &Hooks, resource: &Arc<Resource>) -> Self {
        self.machine.hooks = Some(hooks.of(resource));
        self
    }

    pub(in crate::informer) fn with_resource_hooks(mut self, hooks: ResourceHooks) -> Self {
        self.machine.hooks = Some(hooks);
        self
    }

    /// Makes the reflector call `on_early_end` when upstream has ended a watch cleanly, and more
    /// than 5 s before its deadline. `on_early_end` may request a relist, and must not block.
    #[must_use]
    pub(in crate::informer) fn with_early_end_hook(
        mut self,
        on_early_end: impl Fn() + Send + 'static,
    ) -> Self {
        self.machine.on_early_end = Some(Box::new(on_early_end));
        self
    }

    /// Makes the reflector share what it learns about upstream with other
    /// reflectors of this upstream.
    #[must_use]
    pub(in crate::informer) fn with_watch_lists(mut self, watch_lists: WatchLists) -> Self {
        self.machine.watch_lists = watch_lists;
        self
    }

    /// Makes the reflector record its recoveries in `recoveries`.
    #[must_use]
    pub(in crate::informer) fn with_recoveries(mut self, recoveries: RecoveryLog) -> Self {
        self.machine.recoveries = Some(recoveries);
        self
    }

    /// Returns the counters, which stay readable after the reflector has ended.
    pub fn metrics(&self) -> Arc<ReflectorMetrics> {
        Arc::clone(&self.machine.metrics)
    }

    /// Runs until [`Signals::stop`] completes, or until upstream refuses the resource finally. Then
    /// it closes the cache, which ends the cache's watches cleanly. Dropping the future closes the
    /// cache too.
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
        tracing::info!(%ended, "reflector ended");
        machine.writer.close();
        ended
    }
}
