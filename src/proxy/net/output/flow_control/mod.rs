//! Decides when kubefan may write DATA frames of an HTTP/2 connection beside the HTTP library (RFC
//! 9113, sections 5.2 and 6.9).
//!
//! The library has no part in the DATA frames of a stream that kubefan has taken over. So it must
//! not get the WINDOW_UPDATE frames for them: its window would become too large, and it would end
//! the stream. Those of the connection are divided between kubefan and the library. All other
//! frames that are received pass unchanged.
//!
//! What the library writes is followed, because frames of kubefan may only be between its frames,
//! after the head of the answer, and before the end of the stream.

mod connection_window;
mod frames;
mod open_streams;
mod peer_settings;
mod received;
mod written;

use std::mem;
use std::task::Waker;

use connection_window::{ConnectionWindow, MAX_WINDOW};
use frames::{
    ACK, DATA, GOAWAY, HEAD_BYTES, HEADERS, RST_STREAM, SETTINGS, UPDATE_BYTES, WindowUpdate,
};
use open_streams::OpenStreams;
use peer_settings::PeerSettings;
use received::{Received, ReceivedFrames};
use written::WrittenFrames;

/// The fewest waiting streams that are woken at once.
const LEAST_WOKEN: usize = 8;

/// The flow control of a connection's DATA frames.
#[derive(Debug)]
pub struct FlowControl {
    received: ReceivedFrames,
    written: WrittenFrames,
    connection: ConnectionWindow,
    settings: PeerSettings,
    streams: OpenStreams,
    /// The frames of kubefan since streams were last woken: about as many have room the next time.
    frames: usize,
    /// The streams that can go on, or have ended, since the last [`FlowControl::take_woken`].
    woken: Vec<Waker>,
}

/// The stream takes no more data: it or its connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReset;

// === impl FlowControl ===

impl FlowControl {
    /// Bytes of a frame in front of its payload.
    pub const HEAD_BYTES: usize = HEAD_BYTES;
    /// Bytes of the frame that [`FlowControl::refill`] returns.
    pub const UPDATE_BYTES: usize = UPDATE_BYTES;

    /// Takes note of received bytes, and changes those that the HTTP library must not get. Returns
    /// how many of the bytes it may get now. The others, up to 12 bytes, must be passed again, in
    /// front of those that are received next.
    pub fn receive(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while let Some(received) = self.received.next(bytes, &mut at) {
            match received {
                Received::Headers(stream) => self.streams.open(stream),
                Received::Reset(stream) => self.streams.end(stream, &mut self.woken),
                Received::Settings(settings) => self.settings.receive(settings),
                Received::Update(update) if update.increment() == 0 => {
                    // An error, which the library reports.
                }
                Received::Update(update) if update.stream() == 0 => self.open_connection(update),
                Received::Update(update) => self.open_stream(update),
            }
        }
        at
    }

    /// Returns true if [`FlowControl::refill`] should be called before anything is received.
    #[must_use]
    pub fn is_refill_due(&self) -> bool {
        self.connection.is_refill_due()
    }

    /// Returns a frame that the library must receive next, if it has used up most of what it may
    /// send. The bytes that [`FlowControl::receive`] has returned must have reached it.
    pub fn refill(&mut self) -> Option<[u8; UPDATE_BYTES]> {
        if !self.is_refill_due() || !self.received.is_between_frames() {
            return None;
        }
        Some(frames::connection_update(self.connection.refill()))
    }

    /// Takes note of bytes that the library writes.
    pub fn write(&mut self, mut bytes: &[u8]) {
        let was_between_frames = self.written.is_between_frames();
        while let Some(head) = self.written.next(&mut bytes) {
            match head.kind {
                DATA => {
                    let length = u32::try_from(head.length).unwrap_or(u32::MAX);
                    self.connection.spend_of_library(length);
                }
                HEADERS => self.begin_answer(head.stream),
                RST_STREAM => self.streams.end(head.stream, &mut self.woken),
                SETTINGS if head.has(ACK) => {
                    self.settings.acknowledge();
                    let window = self.settings.initial_window;
                    self.streams.wake_opened(window, &mut self.woken);
                }
                GOAWAY => self.streams.refuse(),
                _ => {}
            }
            if head.ends_message() {
                self.streams.end(head.stream, &mut self.woken);
            }
        }
        if !was_between_frames {
            self.wake_waiting();
        }
    }

    /// Takes over the DATA frames of a stream whose answer the library has not got yet. The answer
    /// must have one head. Returns false if the stream has ended, or the connection's window is too
    /// small.
    pub fn take_over(&mut self, stream: u32, waker: Waker) -> bool {
        if !self.connection.is_shared() {
            return false;
        }
        let Some(open) = self.streams.find(stream) else {
            return false;
        };
        open.is_own = true;
        open.writer = Some(waker);
        true
    }

    /// Notes that kubefan writes no more DATA frames of a stream. Returns its waker.
    pub fn give_up(&mut self, stream: u32) -> Option<Waker> {
        self.streams.give_up(stream)
    }

    /// Returns the most bytes of payload that a DATA frame of `stream` may have now. If there are
    /// none, the stream's waker is woken when there are some. `place` is anything at first, and
    /// then what the last call for the stream has left there.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn room(&mut self, place: &mut usize, stream: u32) -> Result<usize, StreamReset> {
        let open = self.streams.find_at(place, stream).ok_or(StreamReset)?;
        let window = open.window(self.settings.initial_window);
        let Some(window) = u32::try_from(window)
            .ok()
            .filter(|_| open.has_begun && window > 0)
        else {
            open.wait();
            return Ok(0);
        };
        let room = window
            .min(self.settings.max_frame)
            .min(self.connection.own());
        if room == 0 || !self.written.is_between_frames() {
            self.streams.wait(*place);
            return Ok(0);
        }
        Ok(room as usize)
    }

    /// Checks that a stream has not ended. `place` is as for [`room`](Self::room).
    ///
    /// # Errors
    /// If it has.
    pub fn check_open(&mut self, place: &mut usize, stream: u32) -> Result<(), StreamReset> {
        let open = self.streams.find_at(place, stream);
        open.map(|_| ()).ok_or(StreamReset)
    }

    /// Makes a stream wait for [`FlowControl::wake_waiting`].
    pub fn wait(&mut self, place: &mut usize, stream: u32) {
        if self.streams.find_at(place, stream).is_some() {
            self.streams.wait(*place);
        }
    }

    /// Returns the head of a DATA frame of `stream`, which must be written next, and then `length`
    /// bytes of payload.
    ///
    /// # Panics
    /// If there is no [`room`](Self::room) for them.
    pub fn begin_frame(
        &mut self,
        place: &mut usize,
        stream: u32,
        length: usize,
    ) -> [u8; HEAD_BYTES] {
        let sent = u32::try_from(length).expect("it fits into the window");
        if let Some(open) = self.streams.find_at(place, stream) {
            open.credit -= i64::from(sent);
        }
        self.connection.spend(sent);
        self.frames += 1;
        frames::data_head(stream, length)
    }

    /// Wakes the first of the streams that wait for the connection, if the connection can go on:
    /// about as many as had room before. Those that find no room wait again, behind the others. The
    /// caller must call this after each flush. The woken streams cause the next flush, which wakes
    /// the next ones.
    pub fn wake_waiting(&mut self) {
        if self.connection.own() > 0 && self.written.is_between_frames() {
            let count = mem::take(&mut self.frames).max(LEAST_WOKEN);
            self.streams.wake_waiting(count, &mut self.woken);
        }
    }

    /// Ends all streams, because the connection has ended.
    pub fn end(&mut self) {
        self.streams.end_all(&mut self.woken);
    }

    /// Returns the wakers to wake. The caller should hold no lock while it wakes them.
    #[must_use]
    pub fn take_woken(&mut self) -> Vec<Waker> {
        mem::take(&mut self.woken)
    }

    /// Divides what the peer has granted to the connection.
    fn open_connection(&mut self, mut update: WindowUpdate<'_>) {
        let was_empty = self.connection.own() == 0;
        match self.connection.grant(update.increment()) {
            Some(0) => update.hide(),
            Some(increment) => update.set_increment(increment),
            // The peer's error. The library reports that its window is too large, too, unless that
            // is empty. Then it reports zero.
            None if self.connection.library() == 0 => update.set_increment(0),
            None => update.set_increment(MAX_WINDOW),
        }
        // If the window was not empty, these streams wait for the output, and a flush wakes them.
        if was_empty {
            self.wake_waiting();
        }
    }

    /// Notes what the peer has granted to a stream.
    fn open_stream(&mut self, mut update: WindowUpdate<'_>) {
        let Some(stream) = self.streams.find(update.stream()) else {
            return;
        };
        let increment = i64::from(update.increment());
        let most = i64::from(MAX_WINDOW);
        if !stream.is_own {
            // The library counts it, too. kubefan needs it if it takes the stream over. So if the
            // peer makes the initial window larger by nearly 2 GiB later, the library may find the
            // stream's window too large, although it is not. No known client does this.
            stream.credit = (stream.credit + increment).min(most);
            return;
        }
        if stream.window(self.settings.received_window) + increment > most {
            // The peer's error: the library ends the stream.
            update.set_increment(MAX_WINDOW);
            return;
        }
        update.hide();
        stream.credit += increment;
        stream.wake_if_opened(self.settings.initial_window, &mut self.woken);
    }

    /// Notes the head of an answer.
    fn begin_answer(&mut self, stream: u32) {
        if let Some(open) = self.streams.find(stream) {
            open.has_begun = true;
            open.wake_if_opened(self.settings.initial_window, &mut self.woken);
        }
    }
}

impl Default for FlowControl {
    /// Returns the state of a connection on which nothing was sent.
    fn default() -> Self {
        Self {
            received: ReceivedFrames::new(),
            written: WrittenFrames::default(),
            connection: ConnectionWindow::new(),
            settings: PeerSettings::new(),
            streams: OpenStreams::default(),
            frames: 0,
            woken: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
