//! The settings of a peer that limit DATA frames (RFC 9113, section 6.5.2).

use std::collections::VecDeque;

use super::connection_window::MAX_WINDOW;

const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
/// The default of both settings: a window of 65,535 bytes, and frames of 16 KiB.
const DEFAULT_WINDOW: u32 = 65_535;
const LEAST_FRAME: u32 = 16 << 10;
const LARGEST_FRAME: u32 = (1 << 24) - 1;
/// Bytes of a setting in a SETTINGS frame.
const SETTING_BYTES: usize = 6;

/// The settings that count, and those that the HTTP library has not acknowledged.
///
/// New settings count from their acknowledgement on, because a peer may apply them only when it
/// receives this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSettings {
    /// The window of a new stream.
    pub(super) initial_window: u32,
    /// The most bytes of a frame's payload.
    pub(super) max_frame: u32,
    /// The window of a new stream as of the last frame that was received.
    pub(super) received_window: u32,
    /// The frames that were received but not acknowledged. One read brings few of them, and the
    /// library acknowledges them before the next read.
    unacknowledged: VecDeque<NewSettings>,
}

/// What a SETTINGS frame changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewSettings {
    initial_window: Option<u32>,
    max_frame: Option<u32>,
}

/// Reads the payload of a SETTINGS frame, which may arrive in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SettingsReader {
    /// The beginning of the next setting.
    setting: [u8; SETTING_BYTES],
    /// The number of bytes of `setting` that have arrived.
    arrived: usize,
    read: NewSettings,
}

// === impl PeerSettings ===

impl PeerSettings {
    /// Returns the settings of a peer that has sent none.
    pub(super) fn new() -> Self {
        Self {
            initial_window: DEFAULT_WINDOW,
            max_frame: LEAST_FRAME,
            received_window: DEFAULT_WINDOW,
            unacknowledged: VecDeque::new(),
        }
    }

    /// Notes settings that were received.
    pub(super) fn receive(&mut self, settings: NewSettings) {
        if let Some(window) = settings.initial_window {
            self.received_window = window;
        }
        self.unacknowledged.push_back(settings);
    }

    /// Notes that the library has acknowledged the next settings.
    pub(super) fn acknowledge(&mut self) {
        let Some(settings) = self.unacknowledged.pop_front() else {
            return;
        };
        self.initial_window = settings.initial_window.unwrap_or(self.initial_window);
        self.max_frame = settings.max_frame.unwrap_or(self.max_frame);
        if self.unacknowledged.is_empty() {
            // Most connections receive one SETTINGS frame, and need no memory for it later.
            self.unacknowledged = VecDeque::new();
        }
    }
}

// === impl NewSettings ===

impl NewSettings {
    /// Adds a setting. An invalid one does not count: the library ends the connection.
    fn add(&mut self, setting: [u8; SETTING_BYTES]) {
        let [a, b, value @ ..] = setting;
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            INITIAL_WINDOW_SIZE if value <= MAX_WINDOW => self.initial_window = Some(value),
            MAX_FRAME_SIZE if (LEAST_FRAME..=LARGEST_FRAME).contains(&value) => {
                self.max_frame = Some(value);
            }
            _ => {}
        }
    }
}

// === impl SettingsReader ===

impl SettingsReader {
    /// Reads the next part of the payload.
    pub(super) fn read(&mut self, mut payload: &[u8]) {
        while !payload.is_empty() {
            let missing = SETTING_BYTES - self.arrived;
            let (own, rest) = payload.split_at(missing.min(payload.len()));
            self.setting[self.arrived..][..own.len()].copy_from_slice(own);
            self.arrived += own.len();
            payload = rest;
            if self.arrived == SETTING_BYTES {
                self.arrived = 0;
                self.read.add(self.setting);
            }
        }
    }

    /// Returns what was read.
    pub(super) fn into_settings(self) -> NewSettings {
        self.read
    }
}
