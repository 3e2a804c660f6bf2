//! The state of one session, without locks and clocks.

use kubefan_core::api::ResourceVersion;
use tokio::time::Instant;

/// What one user has read and written of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// The newest moment at which the user may have seen a state whose version is not known.
    marked_at: Instant,
    /// Until this moment, the API server may still do a write whose answer did not come.
    unsure_until: Option<Instant>,
    seen: Option<Seen>,
    /// The last states that caches have shown: two, because most resources have two caches, one for
    /// each wire format.
    shown: [ContentHash; 2],
}

/// The newest version that the user has seen, of those that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) version: ResourceVersion,
    /// A moment after the user has seen it first.
    pub(super) at: Instant,
    /// The objects among which the version is that of a change.
    pub(super) scope: ScopeHash,
}

/// Distinguishes the objects that caches hold. A cache of some objects may never reach the version
/// of another object, so versions of different scopes are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeHash(pub(super) u64);

/// Distinguishes the states of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentHash(pub(super) u64);

/// What a cache must have, so that the next read does not go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    marked_at: Instant,
    seen: Option<Seen>,
    shown: [ContentHash; 2],
}

impl ScopeHash {
    /// All objects of a resource.
    pub(super) const WHOLE: Self = Self(0);
}

impl ContentHash {
    /// The state of no cache.
    const NONE: Self = Self(0);
}

impl Session {
    /// Begins a session: the user may have seen anything before `now`. If the session was forgotten,
    /// a write that was lost before may be done until `unsure_until`.
    pub(super) fn begin(now: Instant, unsure_until: Option<Instant>) -> Self {
        Self {
            marked_at: now,
            unsure_until,
            seen: None,
            shown: [ContentHash::NONE; 2],
        }
    }

    /// The user may have seen any state at `now`.
    pub(super) fn mark(&mut self, now: Instant) {
        self.marked_at = self.marked_at.max(now);
    }

    /// A write has no answer. The API server may do it until `until`. Reads until then need a proof of
    /// their own, and later ones a proof since then.
    pub(super) fn lose_write(&mut self, until: Instant) {
        self.unsure_until = self.unsure_until.max(Some(until));
    }

    /// The user has seen `seen`. Versions of another scope become a mark.
    pub(super) fn see(&mut self, seen: Seen) {
        match self.seen {
            Some(earlier) if earlier.scope == seen.scope => {
                // In another history, a lower version may be the newer one.
                self.seen = Some(Seen {
                    version: earlier.version.max(seen.version),
                    at: earlier.at.max(seen.at),
                    scope: seen.scope,
                });
            }
            earlier => {
                if let Some(earlier) = earlier {
                    self.mark(earlier.at);
                }
                self.seen = Some(seen);
            }
        }
    }

    /// A cache has shown its state `content`, and with it `seen`.
    pub(super) fn show(&mut self, content: ContentHash, seen: Seen) {
        self.shown = [content, self.shown[0]];
        self.see(seen);
    }

    /// Returns what a read that arrives at `now` needs.
    pub(super) fn claim(&mut self, now: Instant) -> Claim {
        if let Some(until) = self.unsure_until {
            self.mark(now.min(until));
        }
        Claim {
            marked_at: self.marked_at,
            seen: self.seen,
            shown: self.shown,
        }
    }

    /// Returns what a read that arrives at `now` needs, if a caller that kubefan could not identify
    /// has seen a state at `seen_by_anyone`.
    pub(super) fn claim_after(&mut self, seen_by_anyone: Option<Instant>, now: Instant) -> Claim {
        if let Some(at) = seen_by_anyone {
            self.mark(at);
        }
        self.claim(now)
    }

    /// A cache has not reached `seen` in time. Later reads need a proof in place of the version.
    pub(super) fn give_up(&mut self, seen: Seen) {
        if self.seen == Some(seen) {
            self.seen = None;
            self.mark(seen.at);
        }
    }
}

impl Claim {
    /// Returns the moment since which a cache of `scope` must be proven, if it reaches
    /// [`Claim::version_in`].
    pub(super) fn proven_since(self, scope: ScopeHash) -> Instant {
        match self.seen {
            Some(seen) if seen.scope != scope => self.marked_at.max(seen.at),
            _ => self.marked_at,
        }
    }

    /// Returns the version that a cache of `scope` must reach; `None` if any will do.
    pub(super) fn version_in(self, scope: ScopeHash) -> Option<Seen> {
        self.seen.filter(|seen| seen.scope == scope)
    }

    /// Returns true if the session has noted that a cache has shown its state `content`. That the
    /// version is not above [`Seen::version`] is not sufficient: in another history, it may be the
    /// newer one.
    pub(super) fn has_shown(self, content: ContentHash) -> bool {
        self.shown.contains(&content)
    }
}

#[cfg(test)]
impl Session {
    /// Returns a session that has seen no version.
    pub(super) fn without_version(self) -> Self {
        Self { seen: None, ..self }
    }
}
