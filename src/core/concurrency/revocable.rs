//! Revocable: a value that another task can take away from its owner.

use std::sync::Arc;

use parking_lot::Mutex;

/// A value that its owner uses, and that another task may drop at any time. Clones share the value.
///
/// The lock is held while the owner uses the value, so the owner must be quick. Only one task uses
/// the value and another one revokes it rarely; the lock is practically never contended.
#[derive(Debug)]
pub struct Revocable<T>(Arc<Mutex<Option<T>>>);

impl<T> Revocable<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Some(value))))
    }

    /// Returns the result of `use_value`, or `None` if the value was revoked.
    pub fn with<R>(&self, use_value: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.lock().as_mut().map(use_value)
    }

    /// Does what [`Revocable::with`] does, but also returns `None` if the value is in use.
    pub fn try_with<R>(&self, use_value: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_lock()?.as_mut().map(use_value)
    }

    /// Drops the value. Later calls do nothing.
    pub fn revoke(&self) {
        // Dropping may take long or run any code, so the lock is released before.
        drop(self.take());
    }

    /// Takes the value away from its owner; `None` if it was revoked.
    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }

    /// Returns true if the value was revoked.
    pub fn is_revoked(&self) -> bool {
        self.0.lock().is_none()
    }
}

impl<T> Clone for Revocable<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_value_is_dropped_while_its_owner_still_holds_the_wrapper() {
        let value = Arc::new(());
        let owned = Revocable::new(Arc::clone(&value));
        let revoker = owned.clone();
        assert_eq!(owned.with(|value| Arc::strong_count(value)), Some(2));
        assert_eq!(owned.with(|_| revoker.try_with(|_| ())), Some(None));
        revoker.revoke();
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(owned.with(|_| ()), None);
        assert!(owned.is_revoked());
        revoker.revoke();
    }
}
