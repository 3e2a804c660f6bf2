//! Decoded: an object with a kind that is determined at run time.

use std::any::Any;
use std::fmt;

use kubefan_core::api::GroupVersionKind;

/// An object that a [`Scheme`](super::Scheme) has decoded.
pub struct Decoded {
    /// The kind of the object.
    pub gvk: GroupVersionKind,
    pub(super) object: Box<dyn Any + Send + Sync>,
}

// === impl Decoded ===

impl Decoded {
    /// Returns the object, if it is a `K`.
    pub fn get<K: 'static>(&self) -> Option<&K> {
        self.object.downcast_ref()
    }

    /// Returns the object as a `K`.
    ///
    /// # Errors
    /// The unchanged value, if the object is not a `K`.
    pub fn into<K: 'static>(self) -> Result<K, Self> {
        let Self { gvk, object } = self;
        match object.downcast() {
            Ok(object) => Ok(*object),
            Err(object) => Err(Self { gvk, object }),
        }
    }
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Decoded");
        debug.field("gvk", &self.gvk).finish_non_exhaustive()
    }
}
