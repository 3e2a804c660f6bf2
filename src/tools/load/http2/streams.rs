//! Decides what gets the DATA frames of each stream of a connection: a [`BodySink`] or the HTTP
//! library.

use std::collections::HashMap;
use std::mem::take;
use std::task::Waker;

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;
use tokio::time::Instant;

use super::frames::{HEAD_BYTES, Head, content, end_of, window_update};

/// The stream number of a WINDOW_UPDATE that opens the window of the connection (RFC 9113, section
/// 6.9).
const CONNECTION: u32 = 0;

/// Takes the body of an answer while it is received, on the task of the connection.
pub(crate) trait BodySink: Send {
    /// Takes the next bytes of the body, which were read at `read_at`. Must not block, and must not
    /// use the connection.
    fn take(&mut self, part: &[u8], read_at: Instant);
}

/// Flow-control windows, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) stream: u32,
    pub(crate) connection: u32,
}

/// The receiver of each stream's DATA frames, and what the frames of all streams led to.
pub(super) struct Streams {
    windows: Windows,
    /// The open streams. The library gets the frames of all others.
    receivers: HashMap<u32, Receiver>,
    /// Frames for the library that it has not read yet.
    passed: BytesMut,
    /// True if the last received frame for the library is continued by the next one.
    is_continued: bool,
    /// Frames for the library that wait until the headers that are being received are complete.
    held_back: BytesMut,
    /// Frames that are to be sent.
    updates: Vec<u8>,
    /// The bytes for sinks since the connection's window was last opened.
    taken: usize,
    /// The task of the connection.
    task: Option<Waker>,
}

/// What gets the DATA frames of a stream.
enum Receiver {
    /// This is not known yet. The DATA frames so far are kept, and the flow-control window is not
    /// opened for them, so a correct server stops when it is full.
    Undecided(Vec<u8>),
    Library,
    Sink {
        sink: Box<dyn BodySink>,
        /// The bytes since the stream's window was last opened.
        taken: usize,
    },
}

impl Streams {
    pub(super) fn new(windows: Windows) -> Self {
        Self {
            windows,
            receivers: HashMap::new(),
            passed: BytesMut::new(),
            is_continued: false,
            held_back: BytesMut::new(),
            updates: Vec::new(),
            taken: 0,
            task: None,
        }
    }

    // The following methods are for the owners of the streams.

    /// Opens a stream. None of its frames may have been received.
    pub(super) fn open(&mut self, stream: u32) {
        let undecided = Receiver::Undecided(Vec::new());
        self.receivers.insert(stream, undecided);
    }

    /// Gives the DATA frames of a stream to the library, unless this is decided already.
    pub(super) fn give_to_library(&mut self, stream: u32) {
        if let Some(receiver) = self.receivers.get_mut(&stream)
            && let Receiver::Undecided(frames) = receiver
        {
            let frames = take(frames);
            *receiver = Receiver::Library;
            self.pass(&frames);
        }
    }

    /// Gives the body of a stream to `sink`, unless this is decided already.
    pub(super) fn give_to_sink(&mut self, stream: u32, sink: Box<dyn BodySink>) {
        let Some(receiver) = self.receivers.get_mut(&stream) else {
            return;
        };
        let Receiver::Undecided(frames) = receiver else {
            return;
        };
        let frames = take(frames);
        *receiver = Receiver::Sink { sink, taken: 0 };
        let (mut rest, now) = (frames.as_slice(), Instant::now());
        while let Some(head) = Head::of(rest) {
            let (frame, later) = rest.split_at(HEAD_BYTES + head.length);
            self.take_frame(head, frame, now);
            rest = later;
        }
        self.wake();
    }

    /// Forgets a stream. The library gets the frames that were kept, and resets the stream.
    pub(super) fn close(&mut self, stream: u32) {
        if let Some(Receiver::Undecided(frames)) = self.receivers.remove(&stream) {
            self.pass(&frames);
        }
    }

    /// Gives frames to the library that are not part of what is being received.
    fn pass(&mut self, frames: &[u8]) {
        if !frames.is_empty() {
            self.insert(frames);
            self.wake();
        }
    }

    /// Adds frames for the library, after the headers that are being received.
    fn insert(&mut self, frames: &[u8]) {
        let queue = if self.is_continued {
            &mut self.held_back
        } else {
            &mut self.passed
        };
        queue.extend_from_slice(frames);
    }

    fn wake(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }

    // The following methods are for the task of the connection.

    /// Returns true if a sink gets the body of the stream.
    pub(super) fn has_sink(&self, stream: u32) -> bool {
        matches!(self.receivers.get(&stream), Some(Receiver::Sink { .. }))
    }

    /// Takes a part of a body whose stream had a sink at the beginning of the DATA frame, and which
    /// takes `bytes` of the flow-control windows. If the stream was closed since, drops the part.
    pub(super) fn take_part(&mut self, stream: u32, part: &[u8], bytes: usize, read_at: Instant) {
        if let Some(Receiver::Sink { sink, taken }) = self.receivers.get_mut(&stream) {
            sink.take(part, read_at);
            *taken += bytes;
            reopen(stream, taken, self.windows.stream, &mut self.updates);
        }
        self.taken += bytes;
        let window = self.windows.connection;
        reopen(CONNECTION, &mut self.taken, window, &mut self.updates);
    }

    /// Takes a whole frame.
    pub(super) fn take_frame(&mut self, head: Head, frame: &[u8], read_at: Instant) {
        if head.is_data() && self.has_sink(head.stream) {
            // Padding counts too (RFC 9113, section 6.1).
            self.take_part(head.stream, content(head, frame), head.length, read_at);
            if head.is_last() {
                self.end(head.stream);
            }
            return;
        }
        match self.receivers.get_mut(&head.stream) {
            Some(Receiver::Undecided(frames)) if head.is_data() => frames.extend_from_slice(frame),
            receiver => {
                // Trailers or a reset must not overtake the data before them.
                if let Some(receiver) = receiver {
                    receiver.release_kept(&mut self.passed);
                }
                self.passed.extend_from_slice(frame);
                self.is_continued = head.is_continued();
                if !self.is_continued {
                    self.passed.extend_from_slice(&self.held_back);
                    self.held_back.clear();
                }
            }
        }
    }

    /// Gives the library all DATA frames that were kept, because the connection has ended.
    pub(super) fn end_all(&mut self) {
        for receiver in self.receivers.values_mut() {
            receiver.release_kept(&mut self.passed);
        }
    }

    /// Tells the library that the body of a stream, which a sink got, has ended.
    pub(super) fn end(&mut self, stream: u32) {
        self.insert(&end_of(stream));
    }

    /// Moves frames for the library to `buffer`. Returns false if there are none. The task is woken
    /// if there are some later that it does not receive itself.
    pub(super) fn read_passed(&mut self, buffer: &mut ReadBuf<'_>, task: &Waker) -> bool {
        match &mut self.task {
            Some(known) => known.clone_from(task),
            None => self.task = Some(task.clone()),
        }
        let length = self.passed.len().min(buffer.remaining());
        buffer.put_slice(&self.passed[..length]);
        self.passed.advance(length);
        length > 0
    }

    /// Moves the frames that are to be sent to `updates`.
    pub(super) fn take_updates(&mut self, updates: &mut BytesMut) {
        if !self.updates.is_empty() {
            updates.extend_from_slice(&self.updates);
            self.updates.clear();
        }
    }
}

impl Receiver {
    /// Gives the body of the stream to the library if DATA frames of it were kept.
    fn release_kept(&mut self, passed: &mut BytesMut) {
        if let Self::Undecided(frames) = self
            && !frames.is_empty()
        {
            passed.extend_from_slice(frames);
            *self = Self::Library;
        }
    }
}

/// Makes the frame that opens a window again by `taken` bytes, if at least half of the window is
/// used. The library does not do this for bytes that it does not see.
fn reopen(stream: u32, taken: &mut usize, window: u32, updates: &mut Vec<u8>) {
    if *taken >= window as usize / 2 {
        // It fits: less than half of a window was taken before, and a frame has less than 16 MiB.
        let bytes = take(taken) as u32;
        updates.extend_from_slice(&window_update(stream, bytes));
    }
}
