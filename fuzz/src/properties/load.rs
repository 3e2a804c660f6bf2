//! The load test's frame parser: frames do not depend on the chunks of the stream, they equal the
//! frames of kubefan's splitter, and type and version of a frame equal those of kubefan's decoder.

use bytes::Bytes;
use kubefan::api::{EventType, WatchEvent, WireFormat};
use kubefan::codec::{Decoder, Encoder, Error, TypeMeta};
use kubefan_tools::load::{FrameCutter, FrameType, VersionFinder};

use super::frames::reference;
use super::plain::is_plain;
use super::pod_fields;

/// The limit of a frame's length, small enough that short inputs reach it.
const LIMIT: usize = 1 << 12;
/// The JSON text before a resourceVersion.
const NAME: &[u8] = b"\"resourceVersion\":\"";

/// Checks the load test's parser on any stream. The first byte of `data` chooses the format and the
/// limit, the second the length of the first chunk, and the rest is the stream.
pub fn load_frames(data: &[u8]) {
    let Some(([choice, step], stream)) = data.split_first_chunk() else {
        return;
    };
    let format = match choice & 1 {
        0 => WireFormat::Json,
        _ => WireFormat::Protobuf,
    };
    let limit = if choice & 2 == 0 { LIMIT } else { 40 };
    let whole = cut(format, limit, stream, stream.len().max(1));
    for step in [1, usize::from(*step) + 1] {
        let chunks = cut(format, limit, stream, step);
        assert_eq!(chunks, whole, "{format:?} in chunks of {step}");
    }
    let (frames, end) = whole;
    if let Ok(unfinished) = end {
        let length = frames.concat().len();
        assert_eq!(length + unfinished, stream.len());
        assert_eq!(frames.concat(), stream[..length]);
    }
    let (expected, expected_end) = reference(format, limit, stream);
    let is_not_blank =
        |frame: &&Vec<u8>| format == WireFormat::Protobuf || !frame.trim_ascii().is_empty();
    let found: Vec<_> = frames
        .iter()
        .filter(is_not_blank)
        .map(Vec::as_slice)
        .collect();
    assert_eq!(
        found,
        expected.iter().map(Bytes::as_ref).collect::<Vec<_>>()
    );
    let is_too_long = matches!(expected_end, Err(Error::FrameTooLarge { .. }));
    assert_eq!(end.is_err(), is_too_long);
    for frame in &frames {
        read(format, frame);
    }
}

/// Splits a stream that arrives in chunks of `step`, `step + 1`, … bytes. Returns the frames, and
/// the number of remaining bytes, or an error if a frame is too long.
fn cut(
    format: WireFormat,
    limit: usize,
    stream: &[u8],
    step: usize,
) -> (Vec<Vec<u8>>, Result<usize, ()>) {
    let mut cutter = FrameCutter::with_limit(format, limit);
    let mut frames = Vec::new();
    let (mut rest, mut length) = (stream, step);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(length.min(rest.len()));
        (rest, length) = (after, length + 1);
        let cut = cutter.cut(chunk, |frame| frames.push(frame.to_vec()));
        if cut.is_err() {
            return (frames, Err(()));
        }
    }
    (frames, Ok(cutter.unfinished()))
}

/// Reads type and version of any frame. If kubefan's decoder accepts the frame, the parser must
/// find the same type and version in the frame that kubefan encodes again.
fn read(format: WireFormat, frame: &[u8]) {
    let versions = VersionFinder::new(format);
    let _ = (FrameType::of(format, frame), versions.find(frame));
    let frame = Bytes::copy_from_slice(frame);
    let decoder = Decoder::new(format, pod_fields());
    let Ok(type_meta) = TypeMeta::read(format, &frame) else {
        return;
    };
    let Ok(WatchEvent::Change {
        event_type, object, ..
    }) = decoder.event(frame)
    else {
        return;
    };
    let printed = Encoder::from_type_meta(format, &type_meta).event(event_type, &object);
    let kind = match event_type {
        EventType::Added => FrameType::Added,
        EventType::Modified => FrameType::Modified,
        EventType::Deleted => FrameType::Deleted,
    };
    assert_eq!(FrameType::of(format, &printed), kind, "{printed:?}");
    let is_plain = format == WireFormat::Protobuf
        || is_plain(&printed) && printed.windows(NAME.len()).filter(|at| *at == NAME).count() == 1;
    if is_plain && let Some(version) = versions.find(&printed) {
        assert_eq!(version, object.resource_version.0, "{printed:?}");
    }
}
