//! The refusals of the API server that the set remembers.

use tokio::time::Instant;

use super::key::Key;
use super::{InformerSet, StartError};
use crate::informer::{Config, ReflectorEnd};

// === impl InformerSet ===

impl InformerSet {
    pub(super) fn remembered_refusal(&self, key: &Key) -> Option<StartError> {
        let (refusal, until) = *self.inner.refusals.get(key)?;
        (Instant::now() < until).then_some(refusal)
    }

    /// Remembers a refusal for a while, so that requests do not restart the informer in a loop.
    pub(super) fn remember_refusal(&self, key: &Key, ended: &ReflectorEnd) {
        let (refusal, ttl) = match ended {
            ReflectorEnd::Forbidden(_) => (StartError::Forbidden, Config::FORBIDDEN_TTL),
            ReflectorEnd::NotAcceptable(_) => {
                (StartError::NotAcceptable, Config::NOT_ACCEPTABLE_TTL)
            }
            ReflectorEnd::Gone(_) => (StartError::Gone, Config::GONE_TTL),
            ReflectorEnd::Stopped => return,
        };
        let now = Instant::now();
        let refusals = &self.inner.refusals;
        // Forgets old refusals here, because clients can name any number of namespaces.
        refusals.retain(|_, (_, until)| now < *until);
        refusals.insert(key.clone(), (refusal, now + ttl));
    }
}
