use std::sync::Arc;
use std::task::Wake;

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;

use super::frames::{CONTINUATION, END_HEADERS, END_STREAM, UNKNOWN, WINDOW_UPDATE};
use super::*;

mod model;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PING: u8 = 6;
/// The first update of a client whose window for the connection is 1 GiB.
const GIBIBYTE: u32 = (1 << 30) - 65_535;
/// The most bytes that the library may send without a refill.
const RESERVE: u32 = 1 << 20;

/// The streams that were woken, in this order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

struct StreamWaker {
    stream: u32,
    log: Log,
}

impl Log {
    fn waker(&self, stream: u32) -> Waker {
        let log = self.clone();
        Waker::from(Arc::new(StreamWaker { stream, log }))
    }

    /// Wakes the streams of `flow` that can go on, and returns them.
    fn wake(&self, flow: &mut FlowControl) -> Vec<u32> {
        flow.take_woken().into_iter().for_each(Waker::wake);
        mem::take(&mut self.0.lock())
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.log.0.lock().push(self.stream);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let head = [a, b, c, kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

fn update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn setting(id: u8, value: u32) -> Vec<u8> {
    frame(
        SETTINGS,
        0,
        0,
        &[&[0, id][..], &value.to_be_bytes()].concat(),
    )
}

fn headers(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, b"a")
}

fn answer(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, b"a")
}

/// Receives complete frames, and returns what the library gets.
fn receive(flow: &mut FlowControl, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = frames.concat();
    assert_eq!(flow.receive(&mut bytes), bytes.len());
    bytes
}

/// A connection with a large window, and open streams.
fn connection(streams: &[u32]) -> FlowControl {
    let mut flow = FlowControl::default();
    receive(&mut flow, &[PREFACE.to_vec(), update(0, GIBIBYTE)]);
    for stream in streams {
        receive(&mut flow, &[headers(*stream)]);
    }
    flow
}

/// A connection with a large window, and streams that kubefan writes and whose answers have begun.
fn own_streams(streams: &[u32], log: &Log) -> FlowControl {
    let mut flow = connection(streams);
    for stream in streams {
        assert!(flow.take_over(*stream, log.waker(*stream)));
        flow.write(&answer(*stream));
    }
    flow
}

fn room(flow: &mut FlowControl, stream: u32) -> Result<usize, StreamReset> {
    flow.room(&mut 0, stream)
}

/// Sends `bytes` in frames that are as large as possible.
fn send(flow: &mut FlowControl, stream: u32, mut bytes: usize) {
    while bytes > 0 {
        let length = room(flow, stream).unwrap().min(bytes);
        assert!(length > 0, "{bytes} bytes do not fit");
        flow.begin_frame(&mut 0, stream, length);
        bytes -= length;
    }
}

#[test]
fn updates_of_a_stream_that_was_taken_over_are_hidden() {
    let mut flow = own_streams(&[1, 3], &Log::default());
    flow.give_up(3);
    for stream in [1, 3] {
        let passed = receive(&mut flow, &[update(stream, 5)]);
        assert_eq!(passed, frame(UNKNOWN, 0, stream, &[0, 0, 0, 5]));
    }
    send(&mut flow, 1, 65_540);
    assert_eq!(room(&mut flow, 1), Ok(0));
}

#[test]
fn an_update_before_a_stream_is_taken_over_counts_for_both() {
    let mut flow = connection(&[1]);
    assert_eq!(receive(&mut flow, &[update(1, 5)]), update(1, 5));
    assert!(flow.take_over(1, Waker::noop().clone()));
    flow.write(&answer(1));
    send(&mut flow, 1, 65_540);
    assert_eq!(room(&mut flow, 1), Ok(0));
}

#[test]
fn other_frames_pass_unchanged() {
    let mut flow = own_streams(&[1, 3], &Log::default());
    for frame in [
        headers(5),
        // An increment of zero is an error, which the library reports.
        update(1, 0),
        update(0, 0),
        // As is a frame of another length.
        frame(WINDOW_UPDATE, 0, 1, &[0; 5]),
        // A stream that has ended or was never open.
        update(2, 7),
        update(9, 7),
        frame(PING, 0, 0, &update(0, 7)[..8]),
        frame(DATA, 0, 3, &update(0, 7)),
        setting(4, 9),
        frame(RST_STREAM, 0, 3, &[0; 4]),
        update(3, 7),
    ] {
        assert_eq!(receive(&mut flow, std::slice::from_ref(&frame)), frame);
    }
}

#[test]
fn the_window_of_the_connection_is_divided() {
    enum Step {
        /// The peer opens the window: the increment, and what the library gets of it.
        Open(u32, u32),
        /// kubefan sends.
        Own(u32),
        /// The library sends.
        Library(u32),
        /// The library's reserve is refilled.
        Refill(u32),
    }
    use Step::{Library, Open, Own, Refill};
    let rows: [&[Step]; 6] = [
        // A small window is the library's alone.
        &[
            Library(60_000),
            Open(60_000, 60_000),
            Open(100_000, 100_000),
            Refill(0),
        ],
        // A window may become large later.
        &[Open(100_000, 100_000), Open(100_000, 0), Own(100_000)],
        // The library has a reserve, and kubefan the rest.
        &[Open(GIBIBYTE, RESERVE - 65_535), Own((1 << 30) - RESERVE)],
        // What kubefan has sent is granted again.
        &[
            Open(GIBIBYTE, RESERVE - 65_535),
            Own(5_000),
            Open(5_000, 0),
            Own((1 << 30) - RESERVE),
        ],
        // The library's reserve is refilled when half of it is used.
        &[
            Open(GIBIBYTE, RESERVE - 65_535),
            Library(RESERVE / 2),
            Refill(0),
            Library(1),
            Refill(RESERVE / 2 + 1),
            Library(7),
            Open(7, 7),
            Own((1 << 30) - RESERVE - RESERVE / 2 - 1),
        ],
        // If both wait, both get half of what is granted.
        &[
            Open(GIBIBYTE, RESERVE - 65_535),
            Library(RESERVE),
            Own((1 << 30) - RESERVE),
            Refill(0),
            Open(101, 51),
            Own(50),
            Open(1, 1),
        ],
    ];
    for (index, steps) in rows.iter().enumerate() {
        let mut window = ConnectionWindow::new();
        for step in *steps {
            match step {
                Open(increment, expected) => {
                    assert_eq!(window.grant(*increment), Some(*expected), "row {index}");
                }
                Own(bytes) => window.spend(*bytes),
                Library(bytes) => window.spend_of_library(*bytes),
                Refill(0) => assert!(!window.is_refill_due(), "row {index}"),
                Refill(bytes) => {
                    assert!(window.is_refill_due(), "row {index}");
                    assert_eq!(window.refill(), *bytes, "row {index}");
                }
            }
        }
    }
}

#[test]
fn three_quarters_of_any_shared_window_can_be_used_by_either_side() {
    for window in [
        262_140,
        300_000,
        1 << 20,
        5 << 20,
        16 << 20,
        1 << 30,
        MAX_WINDOW,
    ] {
        let mut shared = ConnectionWindow::new();
        shared.grant(window - 65_535).unwrap();
        assert!(shared.is_shared());
        shared.spend(shared.own());
        assert!(shared.library() <= window / 4 + 1, "{window}");

        let mut shared = ConnectionWindow::new();
        shared.grant(window - 65_535).unwrap();
        let mut used = 0;
        while used < window / 4 * 3 {
            if shared.is_refill_due() {
                shared.refill();
            }
            let bytes = shared.library().min(10_000);
            assert!(bytes > 0, "{used} of {window}");
            shared.spend_of_library(bytes);
            used += bytes;
        }
    }
    let mut small = ConnectionWindow::new();
    small.grant(262_139 - 65_535).unwrap();
    assert!(!small.is_shared());
}

#[test]
fn a_refill_comes_between_frames() {
    let mut flow = connection(&[1]);
    assert_eq!(flow.refill(), None);
    flow.write(&frame(DATA, 0, 1, &vec![0; 600_000]));
    assert!(flow.is_refill_due());
    let begun = frame(HEADERS, 0, 3, b"abc");
    assert_eq!(flow.receive(&mut begun[..10].to_vec()), 10);
    assert_eq!(flow.refill(), None);
    assert_eq!(flow.receive(&mut begun[10..].to_vec()), 2);
    assert_eq!(flow.refill(), None, "the header block goes on");
    receive(&mut flow, &[frame(CONTINUATION, END_HEADERS, 3, b"d")]);
    assert_eq!(flow.refill(), Some(frames::connection_update(600_000)));
    assert!(!flow.is_refill_due());
}

#[test]
fn a_small_window_is_not_shared() {
    let mut flow = FlowControl::default();
    receive(&mut flow, &[PREFACE.to_vec(), headers(1)]);
    assert!(!flow.take_over(1, Waker::noop().clone()));
}

#[test]
fn new_settings_count_from_their_acknowledgement_on() {
    let ack = frame(SETTINGS, ACK, 0, &[]);
    let log = Log::default();
    let mut flow = own_streams(&[1], &log);
    receive(
        &mut flow,
        &[setting(4, 20_000), setting(4, 10), setting(5, 30_000)],
    );
    send(&mut flow, 1, 1_000);
    assert_eq!(room(&mut flow, 1), Ok(16 << 10));
    flow.write(&ack);
    assert_eq!(room(&mut flow, 1), Ok(16 << 10));
    send(&mut flow, 1, 19_000);
    flow.write(&ack);
    // The window is negative now: 10 - 20,000.
    assert_eq!(room(&mut flow, 1), Ok(0));
    flow.write(&ack);
    receive(&mut flow, &[update(1, 19_990)]);
    assert!(log.wake(&mut flow).is_empty());
    assert_eq!(room(&mut flow, 1), Ok(0));
    receive(&mut flow, &[update(1, 5)]);
    assert_eq!(log.wake(&mut flow), [1]);
    assert_eq!(room(&mut flow, 1), Ok(5));
    receive(&mut flow, &[setting(4, 40_010)]);
    assert_eq!(room(&mut flow, 1), Ok(5));
    flow.write(&ack);
    assert_eq!(room(&mut flow, 1), Ok(30_000), "a larger frame");
    // Invalid values do not count: the library ends the connection.
    for (id, value) in [(4, 1 << 31), (5, 16_383), (5, 1 << 24), (6, 1)] {
        receive(&mut flow, &[setting(id, value)]);
        flow.write(&ack);
        assert_eq!(room(&mut flow, 1), Ok(30_000));
    }
}

#[test]
fn a_larger_window_of_all_streams_wakes_those_that_wait() {
    let log = Log::default();
    let mut flow = own_streams(&[1, 3], &log);
    send(&mut flow, 1, 65_535);
    assert_eq!(room(&mut flow, 1), Ok(0));
    receive(&mut flow, &[setting(4, 65_536)]);
    assert!(log.wake(&mut flow).is_empty());
    flow.write(&frame(SETTINGS, ACK, 0, &[]));
    assert_eq!(log.wake(&mut flow), [1]);
    assert_eq!(room(&mut flow, 1), Ok(1));
}

#[test]
fn the_library_reports_windows_that_are_too_large() {
    let mut flow = own_streams(&[1], &Log::default());
    let most = MAX_WINDOW - 65_535;
    receive(&mut flow, &[update(1, most)]);
    assert_eq!(receive(&mut flow, &[update(1, 1)]), update(1, MAX_WINDOW));
    assert_eq!(
        receive(&mut flow, &[update(0, most)]),
        update(0, MAX_WINDOW)
    );
    // Neither has changed.
    send(&mut flow, 1, 1_000);
    let passed = receive(&mut flow, &[update(1, 1_000), update(0, 1_000)]);
    assert_eq!([passed[3], passed[16]], [UNKNOWN; 2]);
    flow.write(&frame(DATA, 0, 3, &vec![0; RESERVE as usize]));
    assert_eq!(receive(&mut flow, &[update(0, MAX_WINDOW)]), update(0, 0));
}

#[test]
fn the_end_of_a_stream_ends_its_frames() {
    let ends: [fn(&mut FlowControl); 5] = [
        |flow| flow.write(&frame(RST_STREAM, 0, 3, &[0; 4])),
        |flow| flow.write(&frame(DATA, END_STREAM, 3, &[])),
        |flow| flow.write(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &[])),
        |flow| drop(receive(flow, &[frame(RST_STREAM, 0, 3, &[0; 4])])),
        FlowControl::end,
    ];
    for (index, end) in ends.iter().enumerate() {
        let log = Log::default();
        let mut flow = own_streams(&[1, 3, 5], &log);
        end(&mut flow);
        assert_eq!(room(&mut flow, 3), Err(StreamReset), "{index}");
        assert!(log.wake(&mut flow).contains(&3), "{index}");
        assert_eq!(flow.give_up(3).map(drop), None);
        assert!(!flow.take_over(3, log.waker(3)));
        // It cannot be opened again.
        receive(&mut flow, &[headers(3)]);
        assert!(!flow.take_over(3, log.waker(3)));
        assert_eq!(room(&mut flow, 5).is_ok(), index < 4, "{index}");
    }
}

#[test]
fn a_frame_comes_after_the_head_of_the_answer_and_between_frames() {
    let log = Log::default();
    let mut flow = connection(&[1, 3]);
    assert!(flow.take_over(1, log.waker(1)));
    assert_eq!(room(&mut flow, 1), Ok(0));
    let rows: [(Vec<u8>, bool); 6] = [
        (frame(PING, 0, 0, &[0; 8]), false),
        (answer(3), false),
        (frame(HEADERS, 0, 1, b"ab"), false),
        (frame(CONTINUATION, 0, 1, b"c"), false),
        (frame(CONTINUATION, END_HEADERS, 1, b"d"), true),
        (frame(DATA, 0, 3, &[0; 300]), true),
    ];
    for (index, (bytes, is_open)) in rows.iter().enumerate() {
        for part in bytes[..bytes.len() - 1].chunks(4) {
            flow.write(part);
            assert_eq!(room(&mut flow, 1), Ok(0), "{index}");
        }
        log.wake(&mut flow);
        flow.write(&bytes[bytes.len() - 1..]);
        let woken = log.wake(&mut flow);
        assert_eq!(room(&mut flow, 1).unwrap() > 0, *is_open, "{index}");
        assert!(!is_open || woken == [1], "{index}");
    }
}

#[test]
fn streams_that_wait_for_the_connection_are_woken_in_order() {
    let log = Log::default();
    let mut flow = own_streams(&[1, 3, 5, 7], &log);
    for stream in [5, 1, 7, 5, 3] {
        flow.wait(&mut 0, stream);
    }
    flow.write(&frame(RST_STREAM, 0, 1, &[0; 4]));
    assert_eq!(log.wake(&mut flow), [1]);
    flow.wake_waiting();
    assert_eq!(log.wake(&mut flow), [5, 7, 3]);
    flow.wake_waiting();
    assert!(log.wake(&mut flow).is_empty());
}

#[test]
fn about_as_many_waiting_streams_are_woken_as_had_room() {
    let log = Log::default();
    let ids: Vec<u32> = (0..40).map(|number| 2 * number + 1).collect();
    let mut flow = own_streams(&ids, &log);
    for &stream in &ids {
        flow.wait(&mut 0, stream);
    }
    flow.wake_waiting();
    assert_eq!(log.wake(&mut flow), ids[..LEAST_WOKEN]);
    for &stream in &ids[..20] {
        send(&mut flow, stream, 100);
    }
    flow.wake_waiting();
    assert_eq!(log.wake(&mut flow), ids[LEAST_WOKEN..LEAST_WOKEN + 20]);
    flow.wake_waiting();
    flow.wake_waiting();
    assert_eq!(log.wake(&mut flow), ids[LEAST_WOKEN + 20..]);
}

#[test]
fn a_stream_that_is_given_up_waits_no_more() {
    let log = Log::default();
    let ids: Vec<u32> = (0..40).map(|number| 2 * number + 1).collect();
    let mut flow = own_streams(&ids, &log);
    for &stream in &ids {
        flow.wait(&mut 0, stream);
    }
    for &stream in &ids[..LEAST_WOKEN] {
        assert!(flow.give_up(stream).is_some(), "{stream} has a waker");
    }
    flow.wake_waiting();
    assert_eq!(log.wake(&mut flow), ids[LEAST_WOKEN..2 * LEAST_WOKEN]);
}

#[test]
fn a_drained_output_wakes_no_stream_that_waits_for_the_window() {
    let log = Log::default();
    let mut flow = own_streams(&[1], &log);
    receive(&mut flow, &[update(1, 1 << 30)]);
    send(&mut flow, 1, (1 << 30) - RESERVE as usize);
    assert_eq!(room(&mut flow, 1), Ok(0));
    flow.wake_waiting();
    assert!(log.wake(&mut flow).is_empty());
    receive(&mut flow, &[update(0, 1_000)]);
    assert_eq!(log.wake(&mut flow), [1]);
    assert_eq!(room(&mut flow, 1), Ok(1_000));
}

#[test]
fn no_stream_is_taken_over_after_a_goaway_frame() {
    let mut flow = connection(&[1]);
    flow.write(&frame(GOAWAY, 0, 0, &[0; 8]));
    receive(&mut flow, &[headers(3)]);
    assert!(!flow.take_over(3, Waker::noop().clone()));
    assert!(flow.take_over(1, Waker::noop().clone()));
}

#[test]
fn the_memory_of_ended_streams_is_freed() {
    let mut flow = connection(&[]);
    for index in 0..1_000 {
        receive(&mut flow, &[headers(index * 2 + 1)]);
    }
    for index in 0..1_000 {
        flow.write(&frame(DATA, END_STREAM, index * 2 + 1, &[]));
    }
    assert!(format!("{flow:?}").contains("streams: []"));
    assert!(
        flow.streams.capacity() <= 128,
        "{}",
        flow.streams.capacity()
    );
}

proptest! {
    #[test]
    fn parts_of_any_size_are_received_as_the_whole(
        frames in vec((0..11_u8, any::<u8>(), 0..8_u32, vec(any::<u8>(), 0..20)), 0..20),
        cuts in vec(1..40_usize, 1..20),
    ) {
        let frames = frames.iter().map(|(kind, flags, stream, payload)| {
            let length = if *kind == WINDOW_UPDATE { payload.len().min(4) } else { payload.len() };
            frame(*kind, *flags, *stream, &payload[..length])
        });
        let bytes = [PREFACE.to_vec(), update(0, GIBIBYTE)].into_iter().chain(frames);
        let mut whole = bytes.collect::<Vec<_>>().concat();
        let mut rest = whole.clone();
        let mut flow = FlowControl::default();
        prop_assert_eq!(flow.receive(&mut whole), whole.len());
        let (mut flow_of_parts, mut passed, mut kept) = (FlowControl::default(), vec![], vec![]);
        for cut in cuts.iter().cycle() {
            let later = rest.split_off(rest.len().min(*cut));
            kept.append(&mut rest);
            let length = flow_of_parts.receive(&mut kept);
            passed.extend(kept.drain(..length));
            prop_assert!(kept.len() < UPDATE_BYTES);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(passed, whole);
        prop_assert_eq!(format!("{flow_of_parts:?}"), format!("{flow:?}"));
    }

    #[test]
    fn parts_of_any_size_are_written_as_the_whole(
        frames in vec((0..11_u8, any::<u8>(), 0..8_u32, vec(any::<u8>(), 0..20)), 0..20),
        cuts in vec(1..40_usize, 1..20),
    ) {
        let frames = frames.iter().map(|(kind, flags, stream, payload)| {
            frame(*kind, *flags, *stream, payload)
        });
        let whole = frames.collect::<Vec<_>>().concat();
        let mut flow = connection(&[1, 3, 5, 7]);
        flow.write(&whole);
        let mut flow_of_parts = connection(&[1, 3, 5, 7]);
        let mut rest = &whole[..];
        for cut in cuts.iter().cycle() {
            let (part, later) = rest.split_at(rest.len().min(*cut));
            flow_of_parts.write(part);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(format!("{flow_of_parts:?}"), format!("{flow:?}"));
    }

    #[test]
    fn any_bytes_are_received_and_written(
        received in vec(any::<u8>(), 0..2_000),
        written in vec(any::<u8>(), 0..2_000),
    ) {
        let mut flow = connection(&[1]);
        let mut bytes = received.clone();
        let passed = flow.receive(&mut bytes);
        prop_assert!(received.len() - passed < UPDATE_BYTES);
        flow.write(&written);
    }
}
