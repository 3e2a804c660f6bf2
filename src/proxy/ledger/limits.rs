//! The limits of what is held for readers and callers.

use std::time::Duration;

use super::{MinimumRate, available_memory};

/// The share of each budget in the process's limit, as a divisor.
const SHARE: u64 = 8;

/// The limits of a [`Ledger`](super::Ledger).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upper limit in bytes of everything that is held for readers and callers. Buffers of
    /// connections may exceed it by a quarter.
    pub memory: u64,
    /// Upper limit in bytes of the charges of one connection.
    pub connection_memory: u64,
    /// How fast a client must take all bodies of a connection together, without those of watches
    /// and other long-running requests; `None` for no minimum.
    pub minimum_rate: Option<MinimumRate>,
}

impl Limits {
    /// The smallest valid [`Limits::memory`]. A few clients can be served with it.
    pub const MIN_MEMORY: u64 = 16 << 20;
    /// The smallest valid [`Limits::connection_memory`]. A client can have a few dozen requests
    /// with it.
    pub const MIN_CONNECTION_MEMORY: u64 = 1 << 20;
    /// The default of [`MinimumRate::bytes_per_second`].
    pub const MINIMUM_RATE: u64 = 64 << 10;
    /// The time over which the minimum rate is averaged.
    const RATE_PERIOD: Duration = Duration::from_secs(30);

    /// Creates limits: `memory` bytes for the process, by default a quarter of the
    /// [`available_memory`]; `connection_memory` bytes for a connection, by default a quarter of
    /// `memory`; and at least `rate` bytes per second, or no minimum rate if `rate` is 0.
    pub fn new(memory: Option<u64>, connection_memory: Option<u64>, rate: u64) -> Self {
        let memory = memory.unwrap_or_else(|| (available_memory() / 4).max(Self::MIN_MEMORY));
        let share = (memory / 4).max(Self::MIN_CONNECTION_MEMORY);
        Self {
            memory,
            connection_memory: connection_memory.unwrap_or(share),
            minimum_rate: (rate > 0).then_some(MinimumRate {
                bytes_per_second: rate,
                period: Self::RATE_PERIOD,
            }),
        }
    }

    /// Returns the limit of one budget: `most` bytes, or an eighth of [`Limits::memory`] if that is
    /// less.
    pub fn share(&self, most: usize) -> usize {
        let share = self.memory / SHARE;
        usize::try_from(share).map_or(most, |share| share.min(most))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(None, None, Self::MINIMUM_RATE)
    }
}
