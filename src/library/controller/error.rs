//! Why a controller has failed.

use std::time::Duration;

/// Why [`Controller::run`](super::Controller::run) failed. A failed reconcile is no reason: it is
/// logged, counted and retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An informer had no complete list in time.
    #[error("controller {controller}: no complete list of {resource} within {limit:?}")]
    NotSynced {
        /// The name of the controller.
        controller: String,
        /// The resource without a list, as in the API server's messages.
        resource: String,
        /// The time limit.
        limit: Duration,
    },
    /// An informer has ended, so the controller would miss changes.
    #[error("controller {controller}: the informer of {resource} has ended")]
    InformerEnded {
        /// The name of the controller.
        controller: String,
        /// The resource of the informer.
        resource: String,
    },
    /// A predicate or mapping function has panicked, so a change was lost.
    #[error("controller {controller}: a predicate or mapping of {resource} has panicked")]
    WatchPanicked {
        /// The name of the controller.
        controller: String,
        /// The resource of the lost change.
        resource: String,
    },
    /// Some reconciles did not end in time after the stop. They were dropped at an await point,
    /// except those that reached no await point within two more seconds.
    #[error(
        "controller {controller}: {reconciles} reconciles did not end within {limit:?}, and {running} \
         of them cannot be stopped"
    )]
    Unfinished {
        /// The name of the controller.
        controller: String,
        /// The number of workers that were reconciling.
        reconciles: usize,
        /// The number of these reconciles that are still running, because they reach no await
        /// point.
        running: usize,
        /// The time limit.
        limit: Duration,
    },
}
