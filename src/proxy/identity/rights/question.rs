//! A question for the API server's authorizers.

use std::sync::Arc;

use crate::identity::Attributes;
use crate::identity::callers::caller::KnownCaller;
use crate::identity::tokens::token::Digest;

/// A question for the API server's authorizers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Question {
    pub(in crate::identity) user: Digest,
    pub(in crate::identity) attributes: Arc<Attributes>,
}

impl Question {
    pub(in crate::identity) fn new(
        caller: &KnownCaller,
        attributes: impl Into<Arc<Attributes>>,
    ) -> Self {
        Self {
            user: caller.user.digest,
            attributes: attributes.into(),
        }
    }
}
