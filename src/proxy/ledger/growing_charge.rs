//! GrowingCharge: the charge for what is collected in memory, part by part.

use std::sync::Arc;

use super::{Account, Charge, MemoryKind};

/// The charge for what is collected in memory, part by part.
pub struct GrowingCharge {
    kind: MemoryKind,
    account: Option<Arc<Account>>,
    charge: Option<Charge>,
}

impl GrowingCharge {
    /// Creates a charge of 0 bytes. Without an `account`, as in the simulator, all bytes fit and
    /// nothing is charged.
    pub fn new(kind: MemoryKind, account: Option<Arc<Account>>) -> Self {
        Self {
            kind,
            account,
            charge: None,
        }
    }

    /// Charges `bytes` in total, if they are more than before. Returns false if there is no memory
    /// for them.
    pub fn fits(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        match (&mut self.charge, &self.account) {
            (Some(charge), _) => bytes <= charge.bytes() || charge.resize(bytes).is_ok(),
            (None, Some(account)) => {
                self.charge = account.charge(self.kind, bytes).ok();
                self.charge.is_some()
            }
            (None, None) => true,
        }
    }

    /// Returns the charge; `None` if nothing was charged.
    pub fn into_charge(self) -> Option<Charge> {
        self.charge
    }
}
