//! Start: where a watch begins, or why it can't.

use crate::api::ResourceVersion;
use crate::cache::log::Expired;
use crate::cache::objects::Snapshot;
use crate::cache::state::State;

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// The current objects, then changes.
    Snapshot,
    /// Changes after this resource version; if it lies in the future, silence until it has passed.
    After(ResourceVersion),
    /// Changes from now on.
    Tip,
}

/// A place in the history of the current epoch.
pub(super) struct Start {
    /// What the client has seen when the changes begin.
    pub(super) version: ResourceVersion,
    /// The position in the log of what comes after it.
    pub(super) position: u64,
    /// True while the version lies in the future.
    pub(super) is_ahead: bool,
}

// === impl WatchFrom ===

impl WatchFrom {
    /// The start, and the snapshot whose objects come first, if any do.
    pub(super) fn locate(self, state: &State) -> Result<(Start, Option<Snapshot>), Expired> {
        match (self, state.applied()) {
            (Self::After(version), _) => Ok((Start::resumed(state, version)?, None)),
            (Self::Tip, Some(applied)) => Ok((Start::after(state, applied)?, None)),
            (Self::Snapshot, Some(applied)) => {
                Ok((Start::after(state, applied)?, state.snapshot()))
            }
            (Self::Tip | Self::Snapshot, None) => Err(not_ready(ResourceVersion::ZERO)),
        }
    }
}

// === impl Start ===

impl Start {
    /// The start of a client that has seen all of `snapshot`.
    pub(super) fn after_snapshot(state: &State, snapshot: &Snapshot) -> Result<Self, Expired> {
        let version = snapshot.resource_version;
        if snapshot.epoch != state.epoch {
            return Err(other_history(state, version));
        }
        Self::after(state, version)
    }

    /// The start of a client that says it has seen all up to `version`, of whatever history.
    fn resumed(state: &State, version: ResourceVersion) -> Result<Self, Expired> {
        let is_ahead = state.applied().is_some_and(|applied| version > applied);
        if is_ahead && version <= state.newest_earlier_version {
            // Of another history, most likely: silence until this one has come so far would be wrong
            // for long, and a list too many does no harm.
            return Err(other_history(state, version));
        }
        Self::after(state, version)
    }

    /// The start of someone who has seen all up to `version`.
    fn after(state: &State, version: ResourceVersion) -> Result<Self, Expired> {
        let applied = state.applied().ok_or(not_ready(version))?;
        Ok(Self {
            version,
            position: state.log.position_after(version)?,
            is_ahead: version > applied,
        })
    }
}

fn other_history(state: &State, requested: ResourceVersion) -> Expired {
    let oldest = state.log.start();
    Expired { requested, oldest }
}

fn not_ready(requested: ResourceVersion) -> Expired {
    let oldest = ResourceVersion::ZERO;
    Expired { requested, oldest }
}
