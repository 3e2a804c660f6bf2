//! Change: one change of an object, as handlers receive it.

use std::sync::Arc;

/// One change of an object of type `K`.
#[derive(Debug)]
pub enum Change<K> {
    /// An object that is new to the handler.
    Added {
        /// The object.
        object: Arc<K>,
        /// True for the objects that were present when the handler was added.
        is_initial_list: bool,
    },
    /// An object that the handler has received before, after a change or at a resync.
    Updated {
        /// The object as the handler received it last. At a resync it equals `new`.
        old: Arc<K>,
        /// The object now.
        new: Arc<K>,
    },
    /// An object that the handler has received before is gone.
    Deleted(Deleted<K>),
}

/// A deleted object, or one that no longer has the labels or fields that the informer selects.
#[derive(Debug)]
pub struct Deleted<K> {
    /// The object in the last state that was received.
    pub object: Arc<K>,
    /// False if the deletion itself was missed, because the watch was interrupted or the handler
    /// was too slow. The object may then have changed before it was deleted. client-go calls this
    /// `DeletedFinalStateUnknown`.
    pub is_final_state_known: bool,
}

// Not derived: `K` itself need not be `Clone`.
impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added {
                object,
                is_initial_list,
            } => Self::Added {
                object: Arc::clone(object),
                is_initial_list: *is_initial_list,
            },
            Self::Updated { old, new } => Self::Updated {
                old: Arc::clone(old),
                new: Arc::clone(new),
            },
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
        }
    }
}

impl<K> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        Self {
            object: Arc::clone(&self.object),
            is_final_state_known: self.is_final_state_known,
        }
    }
}

impl<K> Change<K> {
    /// Returns the object after the change, or the last received state of a deleted object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted(deleted) => &deleted.object,
        }
    }
}
