//! The memory of the frames of a watch that no other client shares.

use bytes::Bytes;
use kubefan_core::codec::{MetaVersion, View};

use super::WatchBody;
use crate::ledger;
use crate::ledger::{Charge, MemoryKind, Short};

/// Longest event of one watch, in bytes, that is not charged individually; bursts of such events
/// are charged.
pub(in crate::server::deliver) const FREE_FRAME: usize = 4 << 10;

impl WatchBody {
    /// Returns `frame`, charged if it is large and no other client shares it. Returns `None` and
    /// expires the watch if the ledger refuses the charge.
    pub(super) fn charged(&mut self, frame: Bytes) -> Option<Bytes> {
        match self.charge(frame.len()) {
            Ok(None) => Some(frame),
            Ok(Some(charge)) => Some(ledger::charged(frame, charge)),
            Err(_) => {
                self.expire();
                None
            }
        }
    }

    /// Charges the large frames that are left of a burst, like [`WatchBody::charged`]: they stay in
    /// memory until the client reads on. Expires the watch if the ledger refuses the charge.
    pub(super) fn charge_leftover(&mut self) {
        let is_large = |length: &usize| *length > FREE_FRAME;
        let large = self.leftover.iter().map(Bytes::len).filter(is_large).sum();
        match self.charge(large) {
            Ok(charge) => self.leftover_charge = charge,
            Err(_) => self.expire(),
        }
    }

    /// Charges `length` bytes of frames if they are many and no other client shares them. Not
    /// shared are initial events, and events that are encoded for each watch.
    fn charge(&self, length: usize) -> Result<Option<Charge>, Short> {
        let is_own = self.has_initial || !has_shared_frames(self.representation.view);
        let account = self.account.as_ref();
        let account = account.filter(|_| is_own && length > FREE_FRAME);
        let charge = account.map(|account| account.charge(MemoryKind::Watch, length as u64));
        charge.transpose()
    }
}

/// Returns true if all watches that send an event get the same frame. This is false for v1beta1
/// metadata: almost no client uses it, so events store no frame for it. It is false for a Table:
/// only its first row comes with the columns, and ages depend on the time.
fn has_shared_frames(view: View) -> bool {
    match view {
        View::Whole | View::Metadata(MetaVersion::V1) => true,
        View::Metadata(MetaVersion::V1Beta1) | View::Table(..) => false,
    }
}
