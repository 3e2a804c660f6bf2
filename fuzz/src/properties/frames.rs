//! Watch streams: the frames do not depend on the chunks in which a stream arrives, and a decoded
//! frame can be encoded and decoded again.

use bytes::Bytes;
use kubefan::api::{Bookmark, EventType, WatchEvent, WireFormat};
use kubefan::codec::{BookmarkTemplate, Decoder, Encoder, Error, FrameSplitter, TypeMeta};

use super::plain::is_plain;
use super::pod_fields;
use super::printed::{check_round_trip, decode_change};

/// The limit of a frame's length, small enough that short inputs reach it.
const LIMIT: usize = 1 << 12;

/// Checks the splitter and the decoder on any stream. The first byte of `data` chooses the format
/// and the limit, the second the length of the first chunk, and the rest is the stream.
pub fn watch_frames(data: &[u8]) {
    let Some(([choice, step], stream)) = data.split_first_chunk() else {
        return;
    };
    let format = match choice & 1 {
        0 => WireFormat::Json,
        _ => WireFormat::Protobuf,
    };
    let limit = if choice & 2 == 0 { LIMIT } else { 40 };
    let expected = reference(format, limit, stream);
    for chunks in [1, usize::from(*step) + 1, stream.len().max(1)] {
        let cut = |drains: bool| split(format, limit, stream, chunks, drains);
        assert_eq!(cut(true), expected, "{format:?} in chunks of {chunks}");
        assert_eq!(
            cut(false),
            expected,
            "{format:?} in chunks of {chunks}, taken at the end"
        );
    }
    for frame in expected.0 {
        event(format, frame);
    }
}

/// The frames of a stream, and the error with which splitting ended, if any.
pub(super) type Frames = (Vec<Bytes>, Result<(), Error>);

/// Splits a stream that arrives in chunks of `step`, `step + 1`, … bytes.
fn split(format: WireFormat, limit: usize, stream: &[u8], step: usize, drains: bool) -> Frames {
    let mut splitter = FrameSplitter::new(format, limit);
    let mut frames = Vec::new();
    let (mut rest, mut length) = (stream, step);
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(length.min(rest.len()));
        splitter.push(Bytes::copy_from_slice(chunk));
        (rest, length) = (after, length + 1);
        if drains && let Err(error) = drain(&mut splitter, &mut frames) {
            return (frames, Err(error));
        }
    }
    let drained = drain(&mut splitter, &mut frames);
    let end = drained.and_then(|()| splitter.finish());
    (frames, end)
}

fn drain(splitter: &mut FrameSplitter, frames: &mut Vec<Bytes>) -> Result<(), Error> {
    while let Some(frame) = splitter.next() {
        frames.push(frame?);
    }
    Ok(())
}

/// A simple implementation of the splitter, which splits the whole stream at once.
pub(super) fn reference(format: WireFormat, limit: usize, stream: &[u8]) -> Frames {
    let mut frames = Vec::new();
    let mut rest = stream;
    let is_blank = |bytes: &[u8]| bytes.trim_ascii().is_empty();
    while !rest.is_empty() {
        let length = match format {
            WireFormat::Json => rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            WireFormat::Protobuf => rest
                .first_chunk::<4>()
                .map(|length| 4 + u32::from_be_bytes(*length) as usize),
        };
        if length.unwrap_or(rest.len()) > limit {
            return (frames, Err(Error::FrameTooLarge { limit }));
        }
        let Some((frame, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
            let ended = format == WireFormat::Json && is_blank(rest);
            let end = if ended {
                Ok(())
            } else {
                Err(Error::TruncatedFrame(rest.len()))
            };
            return (frames, end);
        };
        if format == WireFormat::Protobuf || !is_blank(frame) {
            frames.push(Bytes::copy_from_slice(frame));
        }
        rest = after;
    }
    (frames, Ok(()))
}

fn event(format: WireFormat, frame: Bytes) {
    let decoder = Decoder::new(format, pod_fields());
    let learnt = TypeMeta::read(format, &frame);
    match decoder.event(frame.clone()) {
        Ok(WatchEvent::Change {
            event_type,
            object,
            frame: kept,
        }) => {
            let Ok(type_meta) = learnt else { return };
            let encoder = Encoder::from_type_meta(format, &type_meta);
            let is_plain = format == WireFormat::Protobuf || is_plain(&kept);
            check_round_trip(&decoder, &encoder, (event_type, &object), is_plain);
            let retargeted = encoder.retarget(&kept, EventType::Deleted);
            let retargeted = retargeted.expect("a decoded frame is a watch event");
            assert_eq!(
                decode_change(&decoder, retargeted),
                (EventType::Deleted, object)
            );
        }
        Ok(WatchEvent::Bookmark(bookmark)) => bookmarks(&decoder, format, &bookmark),
        Ok(WatchEvent::Error(status)) => {
            let encoder = Encoder::new(format, "Pod", "v1");
            match decoder.event(encoder.error(&status)) {
                Ok(WatchEvent::Error(again)) => assert_eq!(again, status),
                other => panic!("{status:?} is read again as {other:?}"),
            }
        }
        Err(_) => {}
    }
}

fn bookmarks(decoder: &Decoder, format: WireFormat, bookmark: &Bookmark) {
    let Ok(template) = BookmarkTemplate::from_frame(format, &bookmark.frame) else {
        return;
    };
    let encoder = Encoder::new(format, "Pod", "v1").with_bookmark_template(template);
    for initial_events_end in [false, true] {
        let frame = encoder.bookmark(bookmark.resource_version, initial_events_end);
        match decoder.event(frame.clone()) {
            Ok(WatchEvent::Bookmark(again)) => {
                let decoded_fields = (again.resource_version, again.initial_events_end);
                assert_eq!(
                    decoded_fields,
                    (bookmark.resource_version, initial_events_end),
                    "{frame:?}"
                );
            }
            other => panic!("{frame:?} is read as {other:?}"),
        }
    }
}
