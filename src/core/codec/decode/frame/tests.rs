//! The frame splitter returns the same frames for every way of cutting the stream into chunks.

use bytes::Bytes;

use crate::api::WireFormat;
use crate::codec::{Error, FrameSplitter};

const LINES: &[u8] = b"{\"a\":1}\n\n{\"b\":2}\n \n{\"c\":3}\n";
const MESSAGES: &[u8] = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d";

fn expected(format: WireFormat) -> Vec<&'static [u8]> {
    match format {
        WireFormat::Json => vec![b"{\"a\":1}\n", b"{\"b\":2}\n", b"{\"c\":3}\n"],
        WireFormat::Protobuf => vec![b"\0\0\0\x03abc", b"\0\0\0\0", b"\0\0\0\x01d"],
    }
}

fn drain(splitter: &mut FrameSplitter) -> Vec<Bytes> {
    std::iter::from_fn(|| splitter.next())
        .map(Result::unwrap)
        .collect()
}

#[test]
fn frames_are_whole_at_every_split_point() {
    for (format, stream) in [(WireFormat::Json, LINES), (WireFormat::Protobuf, MESSAGES)] {
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let parts = [&stream[..first], &stream[first..second], &stream[second..]];
                frames_are_whole(format, parts);
            }
        }
    }
}

fn frames_are_whole(format: WireFormat, parts: [&[u8]; 3]) {
    let mut eager = FrameSplitter::new(format, 64);
    let mut lazy = FrameSplitter::new(format, 64);
    let mut frames = Vec::new();
    for part in parts {
        eager.push(Bytes::copy_from_slice(part));
        frames.extend(drain(&mut eager));
        lazy.push(Bytes::copy_from_slice(part));
    }
    assert_eq!(frames, expected(format));
    assert_eq!(drain(&mut lazy), frames);
    assert!(eager.is_empty() && lazy.is_empty());
    assert_eq!(eager.finish(), Ok(()));
}

#[test]
fn a_stream_that_ends_within_a_frame_is_an_error() {
    for (format, stream) in [(WireFormat::Json, LINES), (WireFormat::Protobuf, MESSAGES)] {
        let mut splitter = FrameSplitter::new(format, 64);
        splitter.push(Bytes::from_static(&stream[..stream.len() - 1]));
        assert_eq!(drain(&mut splitter).len(), 2);
        assert!(!splitter.is_empty());
        assert!(matches!(splitter.finish(), Err(Error::TruncatedFrame(_))));
    }
}

#[test]
fn a_frame_beyond_the_limit_ends_the_stream() {
    let long = b"\0\0\0\x09123456789";
    for (format, stream) in [
        (WireFormat::Json, b"{\"long\":12345}\n".as_slice()),
        (WireFormat::Protobuf, long),
        (WireFormat::Protobuf, b"\xff\xff\xff\xff"),
    ] {
        for cut in 0..stream.len() {
            let mut splitter = FrameSplitter::new(format, 12);
            splitter.push(Bytes::from_static(&stream[..cut]));
            let early = splitter.next();
            splitter.push(Bytes::from_static(&stream[cut..]));
            let refused = early.or_else(|| splitter.next());
            assert_eq!(refused, Some(Err(Error::FrameTooLarge { limit: 12 })));
            splitter.push(Bytes::from_static(b"{}\n"));
            assert_eq!(splitter.next(), None);
        }
    }
}

#[test]
fn a_frame_at_the_limit_passes() {
    let mut splitter = FrameSplitter::new(WireFormat::Json, 8);
    splitter.push(Bytes::from_static(b"{\"a\":1}\n"));
    assert_eq!(drain(&mut splitter).len(), 1);
}

#[test]
fn many_small_chunks_cost_no_more_than_their_bytes() {
    let mut splitter = FrameSplitter::new(WireFormat::Json, 1 << 20);
    for _ in 0..100_000 {
        splitter.push(Bytes::from_static(b"1234567"));
        assert_eq!(splitter.next(), None);
    }
    splitter.push(Bytes::from_static(b"\n"));
    assert_eq!(splitter.next().unwrap().unwrap().len(), 700_001);
}
