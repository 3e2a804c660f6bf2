//! The changes a short time before a watch was opened, which it may have been allowed as before.

use tokio::time::Instant;

use super::Opened;
use crate::identity::deleted_objects::DeletedObjects;
use crate::identity::rbac::RecentChanges;

/// The changes a short time ago.
#[derive(Clone, Copy)]
pub(in crate::identity) struct Recent<'a> {
    pub(in crate::identity) roles: &'a RecentChanges,
    pub(in crate::identity) deleted: &'a DeletedObjects,
}

/// The changes a short time before a watch was opened.
#[derive(Default)]
pub(in crate::identity::open_watches) struct Unsettled {
    /// When the user's roles changed last.
    pub(super) roles: Option<Instant>,
    /// When objects were deleted for which its token was issued, and when some of which the uids are
    /// not known.
    pub(super) deleted: (Option<Instant>, Option<Instant>),
}

impl Unsettled {
    pub(in crate::identity::open_watches) fn of(opened: &Opened, recent: Recent<'_>) -> Self {
        let user = opened.caller.user();
        Self {
            roles: recent.roles.last(user, &opened.attributes.namespace),
            deleted: recent.deleted.unsettled(user),
        }
    }
}
