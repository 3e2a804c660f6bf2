use std::task::Waker;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A socket that receives `bytes` in reads of up to the given lengths. A length of 0 is a read that
/// waits.
struct Received<'a> {
    bytes: &'a [u8],
    lengths: &'a [usize],
    reads: usize,
}

impl AsyncRead for Received<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.lengths[self.reads % self.lengths.len()];
        self.reads += 1;
        if length == 0 {
            return Poll::Pending;
        }
        let length = length.min(buffer.remaining()).min(self.bytes.len());
        let (read, rest) = self.bytes.split_at(length);
        buffer.put_slice(read);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

/// Reads all `bytes` into buffers of the given lengths. Returns what the library gets.
fn read_all(bytes: &[u8], lengths: &[usize], buffers: &[usize], flow: &mut FlowControl) -> Vec<u8> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut io = Received {
        bytes,
        lengths,
        reads: 0,
    };
    let mut reads = FilteredReads::new(Instant::now());
    let mut all = Vec::new();
    for length in buffers.iter().cycle() {
        let mut buffer = vec![0; *length];
        let mut buffer = ReadBuf::new(&mut buffer);
        match reads.poll_read(&mut cx, &mut io, flow, &mut buffer) {
            Poll::Pending => assert!(buffer.filled().is_empty()),
            Poll::Ready(read) => {
                read.unwrap();
                if buffer.filled().is_empty() {
                    // The end, and not earlier.
                    assert!(io.bytes.is_empty());
                    return all;
                }
                all.extend_from_slice(buffer.filled());
            }
        }
    }
    unreachable!("there is a buffer")
}

/// A frame that opens the connection's window by a GiB.
const UPDATE: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x40, 0, 0, 0];
/// What the library gets of it.
const PART: [u8; 13] = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0x0f, 0, 1];

#[test]
fn a_read_that_ends_within_a_head_is_given_on_at_the_end() {
    let mut flow = FlowControl::default();
    let bytes = [PREFACE, &UPDATE, &UPDATE[..12]].concat();
    let read = read_all(&bytes, &[7, 0, 30], &[9], &mut flow);
    assert_eq!(read, [PREFACE, &PART, &UPDATE[..12]].concat());
}

#[test]
fn a_refill_is_read_before_other_frames() {
    let mut flow = FlowControl::default();
    let data = |length: usize| {
        let [.., a, b, c] = length.to_be_bytes();
        [&[a, b, c, 0, 0, 0, 0, 0, 1][..], &vec![0; length]].concat()
    };
    let mut reads = FilteredReads::new(Instant::now());
    let mut cx = Context::from_waker(Waker::noop());
    let bytes = [PREFACE, &UPDATE, &[1, 2, 3]].concat();
    let mut io = Received {
        bytes: &bytes,
        lengths: &[37, 3, 0],
        reads: 0,
    };
    let mut read = |flow: &mut FlowControl| {
        let mut buffer = [0; 40];
        let mut buffer = ReadBuf::new(&mut buffer);
        let polled = reads.poll_read(&mut cx, &mut io, flow, &mut buffer);
        polled.map(|read| read.map(|()| buffer.filled().to_vec()).unwrap())
    };
    let Poll::Ready(first) = read(&mut flow) else {
        panic!("bytes have arrived");
    };
    assert_eq!(first, [PREFACE, &PART].concat());
    flow.write(&data(600_000));
    let Poll::Ready(refill) = read(&mut flow) else {
        panic!("a refill is due");
    };
    assert_eq!(refill[..9], UPDATE[..9]);
    assert_eq!(refill[9..], 600_000_u32.to_be_bytes());
    // The beginning of a head is kept. A refill could not come before the rest of it.
    assert!(read(&mut flow).is_pending());
    flow.write(&data(600_000));
    assert!(flow.is_refill_due());
    assert!(read(&mut flow).is_ready(), "the end");
}

proptest! {
    #[test]
    fn the_library_reads_the_same_however_reads_are_divided(
        frames in vec((0..11_u8, any::<u8>(), 0..4_u8, 0..16_u8), 0..12),
        lengths in vec(0..30_usize, 1..8),
        buffers in vec(1..40_usize, 1..8),
        cut in 0..13_usize,
    ) {
        prop_assume!(lengths.iter().any(|length| *length > 0));
        let mut bytes = [PREFACE, &UPDATE].concat();
        for (kind, flags, stream, length) in frames {
            bytes.extend([0, 0, length, kind, flags, 0, 0, 0, stream]);
            bytes.extend((0..length).map(|n| n * 3));
        }
        bytes.truncate(bytes.len() - cut);
        let mut flow = FlowControl::default();
        let mut expected = bytes.clone();
        flow.receive(&mut expected);
        let mut flow_of_parts = FlowControl::default();
        let read = read_all(&bytes, &lengths, &buffers, &mut flow_of_parts);
        prop_assert_eq!(read, expected);
        prop_assert_eq!(format!("{flow_of_parts:?}"), format!("{flow:?}"));
    }
}
