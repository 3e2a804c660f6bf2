//! The changes a short time before a watch was opened. The answer that allowed the watch may be
//! from before these changes.

use std::sync::Arc;

use tokio::time::Instant;

use super::Opened;
use crate::identity::rbac::RecentChanges;
use crate::identity::tokens::deleted_objects::DeletedObjects;

/// The registers of recent changes.
#[derive(Clone)]
pub(in crate::identity) struct Recent {
    pub(in crate::identity) roles: Arc<RecentChanges>,
    pub(in crate::identity) deleted: Arc<DeletedObjects>,
}

/// The changes a short time before a watch was opened.
pub(super) struct Unsettled {
    /// When the user's roles last changed.
    pub(super) roles: Option<Instant>,
    /// When an object for which the caller's token was issued was last deleted, and when an object
    /// with an unknown UID was.
    pub(super) deleted: (Option<Instant>, Option<Instant>),
}

impl Unsettled {
    pub(super) fn of(opened: &Opened, recent: &Recent) -> Self {
        let user = opened.caller.user();
        let attributes = opened.attributes.as_ref();
        Self {
            roles: attributes.and_then(|read| recent.roles.last(user, &read.namespace)),
            deleted: recent.deleted.unsettled(user),
        }
    }
}
