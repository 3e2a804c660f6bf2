//! The flow control of HTTP/2 connections: neither what the library gets nor the state depends on how
//! bytes are divided, and only WINDOW_UPDATE frames are changed.

use std::task::Waker;

use kubefan_proxy::net::FlowControl;

/// What the client sends first: the preface, a WINDOW_UPDATE frame that opens the connection's window
/// by 1 GiB, and two requests.
const BEGIN: [&[u8]; 4] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x40, 0, 0, 0],
    &[0, 0, 0, 1, 5, 0, 0, 0, 1],
    &[0, 0, 0, 1, 5, 0, 0, 0, 3],
];
const HEAD: usize = FlowControl::HEAD_BYTES;
const WINDOW_UPDATE: u8 = 8;

/// Checks the flow control on any bytes. The first byte of `data` is the length of the parts. The
/// second chooses which of the others are received; the library writes the rest.
pub fn http2_frames(data: &[u8]) {
    let Some(([step, share], bytes)) = data.split_first_chunk() else {
        return;
    };
    let (received, written) = bytes.split_at(bytes.len() * usize::from(*share) / 256);
    let whole = run(received, written, bytes.len().max(1));
    for step in [1, usize::from(*step) + 1] {
        assert_eq!(run(received, written, step), whole, "in parts of {step}");
    }
    check_passed(received, &whole.0);
}

/// Returns what the library gets, and the state at the end.
fn run(received: &[u8], written: &[u8], step: usize) -> (Vec<u8>, String) {
    let mut flow = FlowControl::default();
    flow.receive(&mut BEGIN.concat());
    assert!(flow.take_over(1, Waker::noop().clone()));
    let (mut passed, mut kept) = (Vec::new(), Vec::new());
    for part in received.chunks(step) {
        kept.extend_from_slice(part);
        let length = flow.receive(&mut kept);
        passed.extend(kept.drain(..length));
        assert!(kept.len() < FlowControl::UPDATE_BYTES);
    }
    for part in written.chunks(step) {
        flow.write(part);
    }
    let mut place = 0;
    if let Ok(room) = flow.room(&mut place, 1)
        && room > 0
    {
        let head = flow.begin_frame(&mut place, 1, room);
        assert_eq!(
            u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            room
        );
    }
    (passed, format!("{flow:?}"))
}

/// Checks that `passed` has the frames of `received`. Those that open a window may differ, but by
/// their type or increment only.
fn check_passed(mut received: &[u8], mut passed: &[u8]) {
    while let Some([a, b, c, kind, ..]) = received.first_chunk::<HEAD>() {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let is_update = *kind == WINDOW_UPDATE && length == 4;
        if is_update && received.len() < FlowControl::UPDATE_BYTES {
            break;
        }
        let end = (HEAD + length).min(received.len());
        let (frame, later) = received.split_at(end);
        let (given, later_given) = passed.split_at(end);
        if is_update {
            assert_eq!(frame[..3], given[..3]);
            assert!(given[3] == WINDOW_UPDATE || given[3] == u8::MAX);
            assert_eq!(frame[4..HEAD], given[4..HEAD]);
        } else {
            assert_eq!(frame, given);
        }
        (received, passed) = (later, later_given);
    }
    assert!(passed.is_empty());
}
