//! A peer, the HTTP library and kubefan that send and grant at random. The peer checks that nothing
//! exceeds what it has granted, and that nothing is lost, reordered or within another frame.

use std::collections::BTreeMap;

use proptest::sample::Index;

use super::*;

/// What the peer grants in the end, so that all can be sent.
const FINAL_GRANT: u32 = 64 << 20;
/// What each stream of kubefan sends in the end.
const FINAL_BYTES: usize = 100_000;

/// A step of a run: its kind, the stream that it is about, and an amount.
type Step = (u8, Index, u32);

struct Run {
    flow: FlowControl,
    log: Log,
    peer: Peer,
    library: Library,
    /// Bytes that the peer has sent, and that were not received.
    sent: Vec<u8>,
    /// Bytes that were received, and must be passed again.
    kept: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
}

#[derive(Default)]
struct Stream {
    /// True if the library has the answer, with or without its data.
    is_answered: bool,
    is_own: bool,
    has_ended: bool,
    /// True if kubefan waits to be woken.
    waits: bool,
    /// True if kubefan writes no more.
    is_given_up: bool,
    /// The number of bytes that kubefan has sent.
    bytes: usize,
}

/// What the client has granted and received.
struct Peer {
    window: i64,
    /// The settings that were acknowledged: the window of a stream, and the length of a frame.
    settings: (u32, u32),
    unacknowledged: Vec<(u32, u32)>,
    streams: BTreeMap<u32, Received>,
    /// The beginning of a frame.
    partial: Vec<u8>,
}

#[derive(Default)]
struct Received {
    granted: i64,
    bytes: usize,
    has_begun: bool,
    has_ended: bool,
    /// True if kubefan writes the frames.
    is_own: bool,
}

/// What the HTTP library knows, and what it has not written.
struct Library {
    window: i64,
    output: Vec<u8>,
    partial: Vec<u8>,
}

/// The byte of a stream's data at a place.
fn content(stream: u32, place: usize) -> u8 {
    (place * 7 + stream as usize) as u8
}

/// Removes the first frame from `bytes`: its type, flags, stream and payload. `None` if it is not
/// complete.
fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, u8, u32, Vec<u8>)> {
    let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEAD_BYTES>()?;
    let end = HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
    let payload = bytes.get(HEAD_BYTES..end)?.to_vec();
    bytes.drain(..end);
    Some((kind, flags, u32::from_be_bytes(stream), payload))
}

impl Peer {
    /// Takes bytes that were sent to the client.
    fn take(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some((kind, flags, stream, payload)) = take_frame(&mut self.partial) {
            match kind {
                SETTINGS if flags & ACK != 0 => self.settings = self.unacknowledged.remove(0),
                DATA => self.data(stream, &payload),
                _ => {}
            }
            let received = self.streams.entry(stream).or_default();
            received.has_begun |= kind == HEADERS;
            received.has_ended |= kind == RST_STREAM || kind == DATA && flags & END_STREAM != 0;
        }
    }

    fn data(&mut self, stream: u32, payload: &[u8]) {
        let length = i64::try_from(payload.len()).unwrap();
        self.window -= length;
        assert!(self.window >= 0, "more than the connection's window");
        let received = self.streams.get_mut(&stream).expect("an open stream");
        assert!(received.has_begun, "data before the head of {stream}");
        assert!(!received.has_ended, "data after the end of {stream}");
        if !received.is_own {
            return;
        }
        received.granted -= length;
        let window = i64::from(self.settings.0) + received.granted;
        assert!(window >= 0, "more than the window of {stream}");
        assert!(payload.len() <= self.settings.1 as usize);
        for byte in payload {
            assert_eq!(*byte, content(stream, received.bytes), "{stream}");
            received.bytes += 1;
        }
    }
}

impl Library {
    /// Takes what is passed to the library. Returns the streams that the peer has reset.
    fn take(&mut self, bytes: &[u8], streams: &BTreeMap<u32, Stream>) -> Vec<u32> {
        self.partial.extend_from_slice(bytes);
        let mut reset = Vec::new();
        while let Some((kind, flags, stream, payload)) = take_frame(&mut self.partial) {
            match kind {
                WINDOW_UPDATE if stream == 0 => {
                    let increment = u32::from_be_bytes(payload.try_into().unwrap());
                    assert!(increment > 0);
                    self.window += i64::from(increment);
                }
                WINDOW_UPDATE => {
                    let is_passed = streams.get(&stream).is_none_or(Stream::is_passed);
                    assert!(is_passed || reset.contains(&stream), "{stream}");
                }
                SETTINGS if flags & ACK == 0 => {
                    self.output.extend(frame(SETTINGS, ACK, 0, &[]));
                }
                RST_STREAM => reset.push(stream),
                _ => {}
            }
        }
        reset
    }
}

impl Stream {
    /// Returns true if the library may get updates of the stream's window.
    fn is_passed(&self) -> bool {
        !self.is_own || self.has_ended
    }
}

impl Run {
    fn new() -> Self {
        let mut flow = FlowControl::default();
        flow.receive(&mut PREFACE.to_vec());
        Self {
            flow,
            log: Log::default(),
            peer: Peer {
                window: 65_535,
                settings: (65_535, 16 << 10),
                unacknowledged: Vec::new(),
                streams: BTreeMap::new(),
                partial: Vec::new(),
            },
            library: Library {
                window: 65_535,
                output: Vec::new(),
                partial: Vec::new(),
            },
            sent: Vec::new(),
            kept: Vec::new(),
            streams: BTreeMap::new(),
        }
    }

    fn step(&mut self, (kind, index, amount): Step) {
        let stream = match self.streams.len() {
            0 => 0,
            count => u32::try_from(index.index(count) * 2 + 1).unwrap(),
        };
        match kind {
            0 => self.open(),
            1 => self.grant(0, amount),
            2 => self.set(amount),
            3 => self.receive(amount as usize % 60),
            4 => self.refill(),
            5 => self.write(amount as usize % 2_000),
            _ if stream == 0 => {}
            6 => self.grant(stream, amount),
            7 => self.reset(stream, amount),
            8 => self.answer(stream, amount),
            9 => self.end(stream, amount),
            10 => self.give_up(stream, amount),
            _ => {
                self.write_own(stream, amount as usize);
            }
        }
        self.wake();
    }

    /// Wakes the streams that can go on. Returns true if there are any.
    fn wake(&mut self) -> bool {
        let woken = self.log.wake(&mut self.flow);
        for stream in &woken {
            self.streams.get_mut(stream).unwrap().waits = false;
        }
        !woken.is_empty()
    }

    /// The peer resets a stream, sometimes.
    fn reset(&mut self, stream: u32, amount: u32) {
        if amount.is_multiple_of(8) {
            self.sent.extend(frame(RST_STREAM, 0, stream, &[0; 4]));
        }
    }

    fn open(&mut self) {
        let stream = u32::try_from(self.streams.len() * 2 + 1).unwrap();
        self.sent.extend(headers(stream));
        self.streams.insert(stream, Stream::default());
        self.peer.streams.insert(stream, Received::default());
    }

    fn grant(&mut self, stream: u32, increment: u32) {
        self.sent.extend(update(stream, increment));
        let increment = i64::from(increment);
        match self.peer.streams.get_mut(&stream) {
            Some(received) if stream > 0 => received.granted += increment,
            _ => self.peer.window += increment,
        }
    }

    fn set(&mut self, amount: u32) {
        let settings = (amount, (16 << 10) + amount % 1_000);
        let payload = [
            &[0, 4][..],
            &settings.0.to_be_bytes(),
            &[0, 5],
            &settings.1.to_be_bytes(),
        ];
        self.sent.extend(frame(SETTINGS, 0, 0, &payload.concat()));
        self.peer.unacknowledged.push(settings);
    }

    fn receive(&mut self, bytes: usize) {
        let received = self.sent.drain(..bytes.min(self.sent.len()));
        self.kept.extend(received);
        let passed = self.flow.receive(&mut self.kept);
        let passed: Vec<u8> = self.kept.drain(..passed).collect();
        self.pass(&passed);
    }

    fn refill(&mut self) {
        if self.kept.is_empty()
            && let Some(frame) = self.flow.refill()
        {
            self.pass(&frame);
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        for reset in self.library.take(bytes, &self.streams) {
            self.streams.get_mut(&reset).unwrap().has_ended = true;
        }
    }

    /// The library answers a stream, or sends some of its data.
    fn answer(&mut self, stream: u32, amount: u32) {
        let state = self.streams.get_mut(&stream).unwrap();
        if state.has_ended {
            return;
        }
        if !state.is_answered {
            // An even amount lets kubefan write the data, if it may.
            let waker = self.log.waker(stream);
            state.is_own = amount.is_multiple_of(2) && self.flow.take_over(stream, waker);
            state.is_answered = true;
            self.peer.streams.get_mut(&stream).unwrap().is_own = state.is_own;
            self.library.output.extend(answer(stream));
        } else if !state.is_own {
            let length = i64::from(amount).min(self.library.window).min(9_000);
            self.library.window -= length;
            let data = vec![0; usize::try_from(length).unwrap()];
            self.library.output.extend(frame(DATA, 0, stream, &data));
        }
    }

    /// The library ends a stream.
    fn end(&mut self, stream: u32, amount: u32) {
        let state = self.streams.get_mut(&stream).unwrap();
        if state.has_ended || !state.is_answered || !amount.is_multiple_of(4) {
            return;
        }
        state.has_ended = true;
        self.library.output.extend(if amount.is_multiple_of(8) {
            frame(RST_STREAM, 0, stream, &[0; 4])
        } else {
            frame(DATA, END_STREAM, stream, &[])
        });
    }

    /// kubefan gives up a stream that waits, sometimes.
    fn give_up(&mut self, stream: u32, amount: u32) {
        let state = self.streams.get_mut(&stream).unwrap();
        if state.waits && amount.is_multiple_of(4) {
            assert!(self.flow.give_up(stream).is_some(), "{stream}");
            state.waits = false;
            state.is_given_up = true;
        }
    }

    /// The library writes some of its output.
    fn write(&mut self, bytes: usize) {
        let output = &mut self.library.output;
        let written: Vec<u8> = output.drain(..bytes.min(output.len())).collect();
        self.flow.write(&written);
        self.peer.take(&written);
    }

    /// kubefan sends up to `bytes` of a stream's data, unless it waits. Returns how many.
    fn write_own(&mut self, stream: u32, bytes: usize) -> usize {
        let state = self.streams.get_mut(&stream).unwrap();
        if !state.is_own || state.is_given_up || state.waits {
            return 0;
        }
        let mut place = bytes;
        match self.flow.room(&mut place, stream) {
            Err(StreamReset) => 0,
            Ok(0) => {
                state.waits = true;
                0
            }
            Ok(room) => {
                let length = room.min(bytes.max(1));
                let bytes = state.bytes..state.bytes + length;
                state.bytes += length;
                let head = self.flow.begin_frame(&mut place, stream, length);
                let payload: Vec<u8> = bytes.map(|place| content(stream, place)).collect();
                self.peer.take(&[&head[..], &payload].concat());
                length
            }
        }
    }

    /// Lets all that was sent arrive, and opens all windows: then no stream waits for ever.
    fn finish(&mut self) {
        let streams: Vec<u32> = self.streams.keys().copied().collect();
        self.set(300_000);
        self.grant(0, FINAL_GRANT);
        for stream in &streams {
            self.grant(*stream, FINAL_GRANT);
        }
        while !self.sent.is_empty() {
            self.receive(50);
        }
        self.write(usize::MAX);
        // Each flush wakes some of those that wait, and these cause the next one.
        loop {
            self.flow.wake_waiting();
            if !self.wake() {
                break;
            }
        }
        for stream in streams {
            let state = &self.streams[&stream];
            let is_written = state.is_own && !state.is_given_up && !state.has_ended;
            assert!(!state.waits, "{stream} was not woken");
            let mut left = FINAL_BYTES;
            while is_written && left > 0 {
                let sent = self.write_own(stream, left);
                assert!(sent > 0, "{stream} waits");
                left -= sent;
            }
            let received = &self.peer.streams[&stream];
            assert_eq!(received.bytes, self.streams[&stream].bytes, "{stream}");
        }
        assert!(self.kept.is_empty() && self.peer.partial.is_empty());
    }
}

proptest! {
    #[test]
    fn nothing_exceeds_what_the_peer_has_granted(
        is_large in any::<bool>(),
        steps in vec((0..13_u8, any::<Index>(), 1..300_000_u32), 0..300),
    ) {
        let mut run = Run::new();
        if is_large {
            run.grant(0, 250_000);
        }
        run.receive(usize::MAX);
        for step in steps {
            run.step(step);
        }
        run.finish();
    }
}
