//! The bytes that the buffers of a connection hold. They are measured, not charged.

use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Encrypted output that the socket has not taken.
    Encrypted,
    /// Output that was gathered for one write, and that neither TLS nor the socket has taken.
    Gathered,
    /// The head of a request that is not complete.
    Head,
    /// Bodies of requests that were received, but not yet read.
    Upload,
}

/// The bytes that the buffers of a connection hold now. The connection sets them when they change,
/// and the ledger reads them in each sweep. So connections share no counter.
#[derive(Debug, Default)]
pub struct Buffers {
    held: [AtomicU64; Buffer::COUNT],
    /// The output at the last sweep.
    last_output: AtomicU64,
}

// === impl Buffer ===

impl Buffer {
    const COUNT: usize = Self::ALL.len();

    /// All buffers, in the order of their indexes, with their values of the metric label `kind`.
    const ALL: [(Self, &str); 4] = [
        (Self::Encrypted, "output"),
        (Self::Gathered, "output"),
        (Self::Head, "head"),
        (Self::Upload, "upload"),
    ];

    /// The values of the metric label `kind`.
    pub(super) const KINDS: [&str; 3] = ["output", "head", "upload"];
}

// === impl Buffers ===

impl Buffers {
    /// Returns the bytes that `buffer` holds.
    pub fn get(&self, buffer: Buffer) -> u64 {
        self.held[buffer as usize].load(Ordering::Relaxed)
    }

    /// Sets the bytes that `buffer` holds.
    pub fn set(&self, buffer: Buffer, bytes: u64) {
        self.held[buffer as usize].store(bytes, Ordering::Relaxed);
    }

    /// Adds to the bytes that `buffer` holds.
    pub fn add(&self, buffer: Buffer, bytes: u64) {
        self.held[buffer as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts from the bytes that `buffer` holds, down to 0.
    pub fn subtract(&self, buffer: Buffer, bytes: u64) {
        let rest = |held: u64| Some(held.saturating_sub(bytes));
        let held = &self.held[buffer as usize];
        // It fails only if `rest` returns `None`, which it never does.
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
            .ok();
    }

    /// Lowers the bytes that `buffer` holds to `most` if they are more.
    pub fn limit(&self, buffer: Buffer, most: u64) {
        self.held[buffer as usize].fetch_min(most, Ordering::Relaxed);
    }

    /// Returns the bytes of all buffers, as a sweep counts them. Only sweeps call this. Output
    /// counts as the lower of its sizes at the last two sweeps, because at times every socket is
    /// full for a moment.
    pub(super) fn sample(&self) -> u64 {
        let output = self.of_kind("output");
        let last = self.last_output.swap(output, Ordering::Relaxed);
        let received = [Buffer::Head, Buffer::Upload].map(|buffer| self.get(buffer));
        output.min(last) + received.iter().sum::<u64>()
    }

    /// Returns the bytes of the buffers that have the metric label `kind`.
    pub(super) fn of_kind(&self, kind: &str) -> u64 {
        let of_kind = Buffer::ALL.into_iter().filter(|(_, own)| *own == kind);
        of_kind.map(|(buffer, _)| self.get(buffer)).sum()
    }
}
