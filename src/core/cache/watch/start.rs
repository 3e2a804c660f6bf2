//! Start: the position in the log that a watch starts from, or the reason why it cannot start.

use crate::api::ResourceVersion;
use crate::cache::log::Expired;
use crate::cache::objects::Snapshot;
use crate::cache::state::{SharedCache, State};
use crate::mutation;
use crate::mutation::Mutation;

/// The point in the history that a watch starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// Delivers the current objects first, then the changes.
    Snapshot,
    /// Delivers the changes after this resource version, as soon as the cache has reached it.
    After(ResourceVersion),
    /// Delivers only the changes from now on.
    Tip,
}

/// A resource version of the current epoch, with its position in the log.
pub(super) struct Start {
    /// The client has everything up to this version before the first change is delivered.
    pub(super) version: ResourceVersion,
    /// The position in the log of the first event after `version`.
    pub(super) position: u64,
    /// True if the cache has not reached `version` yet.
    pub(super) is_ahead: bool,
}

/// How a version that the upstream's history has reached relates to the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum LogReach {
    /// A watch can start at the version.
    Served,
    /// The version is older than the log, or inside a hole.
    Missing,
    /// The version belongs to an earlier epoch, or the cache has no content.
    Expired,
    /// The cache was closed.
    Closed,
}

// === impl WatchFrom ===

impl WatchFrom {
    /// Returns the start. If the watch delivers objects first, also returns their snapshot.
    pub(super) fn locate(
        self,
        shared: &SharedCache,
        state: &State,
    ) -> Result<(Start, Option<Snapshot>), Expired> {
        match (self, state.applied()) {
            (Self::After(version), _) => Ok((Start::resumed(state, version)?, None)),
            (Self::Tip, Some(applied)) => {
                let newest = applied.max(state.log.newest().unwrap_or_default());
                Ok((
                    Start::after(state, newest)?.within_open_version(state),
                    None,
                ))
            }
            (Self::Snapshot, Some(applied)) => {
                Ok((Start::after(state, applied)?, shared.snapshot(state)))
            }
            (Self::Tip | Self::Snapshot, None) => Err(not_ready(ResourceVersion::ZERO)),
        }
    }
}

// === impl Start ===

impl Start {
    /// Returns the start of a client that has everything up to `version` of `epoch`.
    pub(super) fn in_epoch(
        state: &State,
        epoch: u64,
        version: ResourceVersion,
    ) -> Result<Self, Expired> {
        if epoch != state.epoch {
            return Err(state.expired(version));
        }
        Self::after(state, version)
    }

    /// Returns the start of a client that sent `version`, which may belong to an earlier epoch.
    fn resumed(state: &State, version: ResourceVersion) -> Result<Self, Expired> {
        let is_ahead = state.applied().is_some_and(|applied| version > applied);
        if is_ahead && version <= state.newest_earlier_version {
            // The version is probably from an earlier epoch. Waiting for it could hide changes for
            // long, while an unnecessary list does no harm. Guarded by
            // `versions_of_an_earlier_epoch_expire_and_do_not_wait`.
            return Err(state.expired(version));
        }
        Ok(Self::after(state, version)?.within_open_version(state))
    }

    /// Returns the start of a client that has some changes of the open version, if the start is
    /// this version: the client needs the changes that are still to come.
    fn within_open_version(self, state: &State) -> Self {
        let is_open = self.is_ahead && state.log.newest() == Some(self.version);
        match state.applied().filter(|_| is_open) {
            Some(applied) => Self {
                version: applied,
                is_ahead: false,
                ..self
            },
            None => self,
        }
    }

    /// Returns the start of a client that has everything up to `version` of the current epoch.
    fn after(state: &State, version: ResourceVersion) -> Result<Self, Expired> {
        let applied = state.applied().ok_or(not_ready(version))?;
        Ok(Self {
            version,
            position: state.log.position_after(version)?,
            is_ahead: version > applied,
        })
    }
}

// === impl LogReach ===

impl LogReach {
    /// Returns whether a client of `epoch` that has everything up to `version` can
    /// continue from the log.
    pub(in crate::cache) fn of(state: &State, epoch: u64, version: ResourceVersion) -> Self {
        if state.is_closed {
            return Self::Closed;
        }
        if epoch != state.epoch || state.content.is_none() {
            return Self::Expired;
        }
        if mutation::is_active(Mutation::BridgeLeftEarly) || state.log.expired(version).is_none() {
            return Self::Served;
        }
        Self::Missing
    }
}

/// Returns true if the log lacks events after `version`, but the upstream may
/// still have all of them.
///
/// A version that the cache has not reached is not old: its watch waits. A version that an earlier
/// epoch had reached may belong to another history, or to objects with other bytes, so its client
/// has to list again. Guarded by `only_old_versions_of_this_epoch_are_bridged`.
pub(in crate::cache) fn needs_bridge(state: &State, version: ResourceVersion) -> bool {
    state.applied().is_some_and(|applied| version <= applied)
        && version > state.newest_earlier_version
        && state.log.expired(version).is_some()
}

fn not_ready(requested: ResourceVersion) -> Expired {
    let oldest = ResourceVersion::ZERO;
    Expired { requested, oldest }
}
