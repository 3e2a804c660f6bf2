//! The flow-control window of a connection, which kubefan and the HTTP library share (RFC 9113,
//! section 6.9.1).
//!
//! The library has a reserve of the window. kubefan has the rest, and refills the reserve from it.
//! The window is not divided into halves, because many clients open it again only after half of it
//! was used: one side alone could not use as much, and would wait for ever.

/// The largest flow-control window (RFC 9113, section 6.9.1).
pub(super) const MAX_WINDOW: u32 = u32::MAX >> 1;
/// The window of a new connection. It is the library's.
const INITIAL_WINDOW: u32 = 65_535;
/// A smaller window is the library's alone. In a larger one, kubefan can use three quarters.
const LEAST_SHARED: u32 = 4 * INITIAL_WINDOW;
/// The most bytes of the window that are reserved for the library. It gets more after it has used
/// half of them.
const MAX_RESERVE: u32 = 1 << 20;

/// The bytes that may be sent on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionWindow {
    /// The bytes that kubefan may send.
    own: u32,
    /// The bytes that the library may send.
    library: u32,
    /// The most bytes that both together were ever allowed to send.
    largest: u32,
}

// === impl ConnectionWindow ===

impl ConnectionWindow {
    pub(super) fn new() -> Self {
        Self {
            own: 0,
            library: INITIAL_WINDOW,
            largest: INITIAL_WINDOW,
        }
    }

    /// Returns true if the window is large enough for kubefan and the library.
    pub(super) fn is_shared(&self) -> bool {
        self.largest >= LEAST_SHARED
    }

    /// Returns the bytes that kubefan may send.
    pub(super) fn own(&self) -> u32 {
        self.own
    }

    /// Returns the bytes that the library may send.
    pub(super) fn library(&self) -> u32 {
        self.library
    }

    /// Opens the window by `increment`, which is up to [`MAX_WINDOW`]. Returns the bytes that the
    /// library gets; `None` if the window would be too large.
    pub(super) fn grant(&mut self, increment: u32) -> Option<u32> {
        let window = self.own + self.library + increment;
        if window > MAX_WINDOW {
            return None;
        }
        self.largest = self.largest.max(window);
        self.own += increment;
        Some(self.refill())
    }

    /// Returns true if the library's reserve should be refilled before the peer opens the window.
    /// If kubefan has too little for this, three quarters of the window are used, so the peer is
    /// going to open it.
    pub(super) fn is_refill_due(&self) -> bool {
        let half = self.reserve() / 2;
        self.is_shared() && self.library < half && self.own >= half
    }

    /// Refills the library's reserve. Returns the bytes that the library gets. This is at most half
    /// of what kubefan has, so that neither waits while only the other one sends.
    pub(super) fn refill(&mut self) -> u32 {
        let refilled = if self.is_shared() {
            let missing = self.reserve().saturating_sub(self.library);
            missing.min(self.own.div_ceil(2))
        } else {
            self.own
        };
        self.own -= refilled;
        self.library += refilled;
        refilled
    }

    /// Notes that kubefan has sent `bytes`, up to [`own`](Self::own).
    pub(super) fn spend(&mut self, bytes: u32) {
        self.own -= bytes;
    }

    /// Notes that the library has sent `bytes`.
    pub(super) fn spend_of_library(&mut self, bytes: u32) {
        // The library never sends more than it may. If it did, the peer would report it.
        self.library = self.library.saturating_sub(bytes);
    }

    fn reserve(&self) -> u32 {
        (self.largest / 4).clamp(INITIAL_WINDOW, MAX_RESERVE)
    }
}
