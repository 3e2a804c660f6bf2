//! Why a manager has failed.

use std::time::Duration;

use crate::{controller, leader_election};

/// Why [`Manager::run`](super::Manager::run) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings of leader election contradict each other.
    #[error("leader election cannot start")]
    InvalidElection(#[from] leader_election::InvalidConfig),
    /// The informers of the factory had no complete lists in time, or one has ended.
    #[error("the informers had no complete lists within {limit:?}")]
    NotSynced {
        /// The time limit.
        limit: Duration,
    },
    /// A controller has failed. The others were stopped, and the Lease was given back, unless
    /// reconciles that cannot be stopped are still running.
    #[error(transparent)]
    Controller(#[from] controller::Error),
    /// The Lease could not be renewed or was taken. All controllers were stopped at once.
    #[error("the lease was lost")]
    LeaseLost,
    /// The controllers have stopped, but the Lease could not be given back.
    #[error(transparent)]
    NotReleased(#[from] leader_election::NotReleased),
}
