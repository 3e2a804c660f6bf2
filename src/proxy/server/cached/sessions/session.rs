//! The state of one session, without locks and clocks.

use kubefan_core::api::ResourceVersion;
use tokio::time::Instant;

/// What a read needs, so that its session never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Claim {
    /// The cache must be proven to have all writes that were acknowledged by this moment.
    pub(in crate::server) proven_since: Instant,
    /// The cache must have reached this version, or be proven since `written_at`.
    pub(in crate::server) written: Option<Written>,
}

/// The last write whose version is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Written {
    pub(in crate::server) version: ResourceVersion,
    /// A moment after the answer of the API server.
    pub(in crate::server) at: Instant,
}

/// What one user has read and written of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// The newest moment at which the user may have learned of a state whose version is not known.
    marked_at: Instant,
    written: Option<Written>,
    /// The number of the informer that the last read was answered from.
    informer: Option<u64>,
}

impl Session {
    /// Begins a session: the user may have read or written anything before.
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            marked_at: now,
            written: None,
            informer: None,
        }
    }

    /// The user may have learned of any state at `now`.
    pub(super) fn mark(&mut self, now: Instant) {
        self.marked_at = self.marked_at.max(now);
    }

    /// The user has learned that an object has `version`, by an answer that came before `now`.
    pub(super) fn wrote(&mut self, version: ResourceVersion, now: Instant) {
        let version = match self.written {
            Some(written) => written.version.max(version),
            None => version,
        };
        self.written = Some(Written { version, at: now });
    }

    /// Returns what a read at `now` needs from the cache of the informer with this number. Two
    /// caches can't be compared, so a read of another one than before needs a new proof.
    pub(super) fn read(&mut self, informer: u64, now: Instant) -> Claim {
        if self.informer.is_some_and(|last| last != informer) {
            self.mark(now);
        }
        self.informer = Some(informer);
        Claim {
            proven_since: self.marked_at,
            written: self.written,
        }
    }

    /// A read has shown a state that was proven since `moment`. All that was written before is
    /// in it.
    pub(super) fn proven(&mut self, moment: Instant) {
        self.written = self.written.filter(|written| written.at > moment);
    }
}
