//! Finds the frames that change flow control in what a client sends.
//!
//! Other frames are not checked: if they are invalid, the HTTP library ends the connection.

use super::frames::{
    ACK, HEAD_BYTES, HEADERS, Head, RST_STREAM, SETTINGS, UPDATE_BYTES, WINDOW_UPDATE, WindowUpdate,
};
use super::peer_settings::{NewSettings, SettingsReader};

/// Length of the preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// The place in what a connection receives, however the data is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedFrames {
    /// The bytes of the current payload, or of the preface, that are still to come.
    left: usize,
    /// True if the header block in the current or last frame goes on in the next one.
    is_continued: bool,
    /// Reads the current payload if it is that of a SETTINGS frame.
    settings: Option<SettingsReader>,
}

/// A change of flow control.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// The head of a frame that may open the stream.
    Headers(u32),
    Reset(u32),
    Update(WindowUpdate<'a>),
    Settings(NewSettings),
}

// === impl ReceivedFrames ===

impl ReceivedFrames {
    /// Returns the state of a connection that has received nothing.
    pub(super) fn new() -> Self {
        Self {
            left: PREFACE_BYTES,
            is_continued: false,
            settings: None,
        }
    }

    /// Returns true if another frame may be added after what was received.
    pub(super) fn is_between_frames(&self) -> bool {
        self.left == 0 && !self.is_continued
    }

    /// Returns the next change in `bytes`, of which the first `at` were read, and increases `at`.
    /// After the last change, the bytes from `at` on are an incomplete frame head or WINDOW_UPDATE
    /// frame. They must be passed again, before those that are received next.
    pub(super) fn next<'a>(&mut self, bytes: &'a mut [u8], at: &mut usize) -> Option<Received<'a>> {
        loop {
            *at += self.read_payload(bytes.get(*at..)?);
            if self.left > 0 {
                return None;
            }
            if let Some(settings) = self.settings.take() {
                return Some(Received::Settings(settings.into_settings()));
            }
            let head = Head::read(*bytes.get(*at..)?.first_chunk()?);
            if head.kind == WINDOW_UPDATE && head.length == UPDATE_BYTES - HEAD_BYTES {
                let frame = bytes.get_mut(*at..)?.first_chunk_mut()?;
                *at += UPDATE_BYTES;
                return Some(Received::Update(WindowUpdate::new(frame)));
            }
            *at += HEAD_BYTES;
            self.left = head.length;
            self.is_continued = head.is_continued();
            match head.kind {
                HEADERS => return Some(Received::Headers(head.stream)),
                RST_STREAM => return Some(Received::Reset(head.stream)),
                SETTINGS if !head.has(ACK) => self.settings = Some(SettingsReader::default()),
                _ => {}
            }
        }
    }

    /// Reads the rest of the payload, as far as it is in `bytes`. Returns its length.
    fn read_payload(&mut self, bytes: &[u8]) -> usize {
        let read = self.left.min(bytes.len());
        self.left -= read;
        if let Some(settings) = &mut self.settings {
            settings.read(&bytes[..read]);
        }
        read
    }
}
