//! The streams of a connection whose answers have not ended, and what the peer has granted them.

use std::mem;
use std::task::Waker;

/// Memory is given back when streams use less than a quarter of it. At least this many streams
/// count as open then, so a connection with few streams keeps its memory.
const KEPT_STREAMS: usize = 4;

/// The open streams of a connection.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    /// Ordered by their ids. The library's limit of concurrent streams bounds their number, because
    /// it resets a stream beyond the limit.
    streams: Vec<OpenStream>,
    /// The largest id of all streams that were ever open.
    last: u32,
    /// True if no more streams are added: the library has sent a GOAWAY frame. It may still accept
    /// some, whose answers it writes alone.
    refuses: bool,
    /// The streams that wait for the connection's window or output, in this order.
    waiting: Vec<u32>,
}

/// A stream whose answer has not ended.
#[derive(Debug)]
pub(super) struct OpenStream {
    id: u32,
    /// True after the head of the answer.
    pub(super) has_begun: bool,
    /// True if kubefan writes the DATA frames, or has written some.
    pub(super) is_own: bool,
    /// What the writer waits for.
    waits: Waits,
    /// What the peer's WINDOW_UPDATE frames have granted, minus the DATA that kubefan has sent.
    pub(super) credit: i64,
    /// Wakes what writes the stream's DATA frames; `None` if the library does it.
    pub(super) writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    /// For the head of the answer, or for the window of the stream.
    ForStream,
    /// For the window or output of the connection: the stream is in [`OpenStreams::waiting`].
    ForConnection,
}

// === impl OpenStreams ===

impl OpenStreams {
    /// Adds a stream that the peer opens by a HEADERS frame. Does nothing if the frame does not
    /// open a stream, as that of a body's trailers.
    pub(super) fn open(&mut self, id: u32) {
        let is_new = id % 2 == 1 && id > self.last;
        if !is_new || self.refuses {
            return;
        }
        self.last = id;
        self.streams.push(OpenStream {
            id,
            has_begun: false,
            is_own: false,
            waits: Waits::No,
            credit: 0,
            writer: None,
        });
    }

    /// Adds no more streams.
    pub(super) fn refuse(&mut self) {
        self.refuses = true;
    }

    /// Removes a stream that has ended, and adds its waker to `woken`.
    pub(super) fn end(&mut self, id: u32, woken: &mut Vec<Waker>) {
        let Ok(place) = self.place(id) else {
            return;
        };
        let ended = self.streams.remove(place);
        if ended.waits == Waits::ForConnection {
            self.waiting.retain(|&waiting| waiting != id);
        }
        woken.extend(ended.writer);
        if self.streams.len().max(KEPT_STREAMS) < self.streams.capacity() / 4 {
            self.streams.shrink_to(self.streams.capacity() / 2);
        }
    }

    /// Removes all streams, adds their wakers to `woken`, and adds no more streams.
    pub(super) fn end_all(&mut self, woken: &mut Vec<Waker>) {
        self.refuse();
        self.waiting = Vec::new();
        let ended = mem::take(&mut self.streams);
        woken.extend(ended.into_iter().filter_map(|stream| stream.writer));
    }

    /// Takes the writer of a stream, which waits for nothing any more.
    pub(super) fn give_up(&mut self, id: u32) -> Option<Waker> {
        let stream = self.find(id)?;
        let writer = stream.writer.take();
        if mem::replace(&mut stream.waits, Waits::No) == Waits::ForConnection {
            self.waiting.retain(|&waiting| waiting != id);
        }
        writer
    }

    pub(super) fn find(&mut self, id: u32) -> Option<&mut OpenStream> {
        let place = self.place(id).ok()?;
        self.streams.get_mut(place)
    }

    /// Finds a stream, first at `place`, where it was the last time.
    pub(super) fn find_at(&mut self, place: &mut usize, id: u32) -> Option<&mut OpenStream> {
        let is_there = |stream: &OpenStream| stream.id == id;
        if !self.streams.get(*place).is_some_and(is_there) {
            *place = self.place(id).ok()?;
        }
        self.streams.get_mut(*place)
    }

    /// Makes the stream at `place` wait for the window or output of the connection.
    pub(super) fn wait(&mut self, place: usize) {
        if let Some(stream) = self.streams.get_mut(place)
            && stream.waits != Waits::ForConnection
        {
            stream.waits = Waits::ForConnection;
            self.waiting.push(stream.id);
        }
    }

    /// Adds the wakers of the first `count` streams that wait for the connection to `woken`.
    pub(super) fn wake_waiting(&mut self, count: usize, woken: &mut Vec<Waker>) {
        let rest = self.waiting.split_off(count.min(self.waiting.len()));
        for id in mem::replace(&mut self.waiting, rest) {
            if let Some(stream) = self.find(id) {
                stream.wake(woken);
            }
        }
    }

    /// Adds the wakers of the streams that wait for their window, and have one now, to `woken`. The
    /// window of a new stream has `initial_window` bytes.
    pub(super) fn wake_opened(&mut self, initial_window: u32, woken: &mut Vec<Waker>) {
        for stream in &mut self.streams {
            stream.wake_if_opened(initial_window, woken);
        }
    }

    /// Returns how many streams the allocated memory has room for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.streams.capacity()
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }
}

// === impl OpenStream ===

impl OpenStream {
    /// Returns how many bytes the stream's window has, which may be negative. The window of a new
    /// stream has `initial_window` bytes.
    pub(super) fn window(&self, initial_window: u32) -> i64 {
        i64::from(initial_window) + self.credit
    }

    /// Makes the writer wait for the head of the answer, or for the window of the stream.
    pub(super) fn wait(&mut self) {
        // A stream in the list of waiting streams is woken from there, and then comes here again.
        if self.waits == Waits::No {
            self.waits = Waits::ForStream;
        }
    }

    /// Adds the waker to `woken` if the writer waits for the stream, and can go on.
    pub(super) fn wake_if_opened(&mut self, initial_window: u32, woken: &mut Vec<Waker>) {
        let waits = self.waits == Waits::ForStream;
        if waits && self.has_begun && self.window(initial_window) > 0 {
            self.wake(woken);
        }
    }

    fn wake(&mut self, woken: &mut Vec<Waker>) {
        self.waits = Waits::No;
        woken.extend(self.writer.clone());
    }
}
