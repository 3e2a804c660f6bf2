//! Decoded: an object with a kind that is determined at run time.

use std::any::Any;

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

debug_fields!([] Decoded, |it| gvk: it.gvk);
