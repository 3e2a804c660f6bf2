//! The slots of a listener. They limit the open connections and the second files of their requests.

use std::sync::Arc;

use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The share of the slots, as a divisor, that only connections of clients may have.
const RESERVED_SHARE: usize = 4;

/// The slots of a listener. Some of them are only for connections of clients.
#[derive(Clone, Debug)]
pub struct FileSlots {
    slots: Arc<Semaphore>,
    reserved: usize,
}

/// A slot under the limit of open connections for the second file of a client's request: a
/// connection to another server, for example for an upgraded connection.
pub type FileSlot = OwnedSemaphorePermit;

/// Too few slots are free.
#[derive(Debug)]
pub struct NoFileSlot;

/// A connection's slot under the limit of open connections. The gauge of open connections counts
/// it.
#[derive(Debug)]
pub(in crate::net) struct ConnectionSlot {
    open: IntGauge,
    files: FileSlots,
    _permit: OwnedSemaphorePermit,
}

// === impl FileSlots ===

impl FileSlots {
    /// Takes a slot, and leaves free those that are only for connections of clients.
    ///
    /// # Errors
    /// [`NoFileSlot`] if no other slots are free.
    pub(in crate::net) fn take(&self) -> Result<FileSlot, NoFileSlot> {
        if self.slots.available_permits() <= self.reserved {
            return Err(NoFileSlot);
        }
        let permit = Arc::clone(&self.slots).try_acquire_owned();
        permit.map_err(|_| NoFileSlot)
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Returns the slot of `permit`, one of `limit`.
    pub(in crate::net) fn take(
        open: IntGauge,
        permit: OwnedSemaphorePermit,
        limit: usize,
    ) -> ConnectionSlot {
        open.inc();
        let files = FileSlots {
            slots: Arc::clone(permit.semaphore()),
            reserved: limit / RESERVED_SHARE,
        };
        ConnectionSlot {
            open,
            files,
            _permit: permit,
        }
    }

    pub(in crate::net) fn files(&self) -> &FileSlots {
        &self.files
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_files_leave_a_quarter_of_the_slots() {
        let slots = Arc::new(Semaphore::new(8));
        let permit = Arc::clone(&slots).try_acquire_owned().expect("a slot");
        let open = IntGauge::new("open", "open").expect("a gauge");
        let slot = ConnectionSlot::take(open, permit, 8);
        let files: Vec<_> = std::iter::from_fn(|| slot.files().take().ok()).collect();
        assert_eq!((files.len(), slots.available_permits()), (5, 2));
        drop(files);
        assert!(slot.files().take().is_ok());
        drop(slot);
        assert_eq!(slots.available_permits(), 8);
    }
}
