//! Cuts the body of a watch into frames, mostly without copying, and reads the type and the version
//! of each frame.

use kubefan_core::api::WireFormat;
use memchr::memchr;
use memchr::memmem::Finder;

/// The size, in bytes, of the length before each protobuf message.
const LENGTH_PREFIX: usize = 4;
/// The maximum length of a frame, in bytes.
const MAX_FRAME: usize = 64 << 20;
/// The first bytes of every object in Kubernetes' protobuf encoding.
const MAGIC: &[u8] = b"k8s\0";

/// The event type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// An object was created, or now matches the selector.
    Added,
    /// An object was changed.
    Modified,
    /// An object was deleted, or no longer matches the selector.
    Deleted,
    /// A bookmark, which carries the version that the watch has reached.
    Bookmark,
    /// An error; the watch ends after it.
    Error,
    /// Any other type, or a malformed frame.
    Unknown,
}

/// Cuts a stream into frames. Buffers the start of a frame until the rest arrives.
#[derive(Debug)]
pub struct FrameCutter {
    format: WireFormat,
    limit: usize,
    partial: Vec<u8>,
}

/// A frame exceeds the maximum length. The field holds the length seen so far, in bytes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a watch frame of {0} bytes or more, which exceeds the limit")]
pub struct FrameTooLong(usize);

/// Finds the resource version of the object in a frame.
pub struct VersionFinder {
    format: WireFormat,
    name: Finder<'static>,
}

// === impl FrameCutter ===

impl FrameCutter {
    /// Creates a cutter that accepts frames of up to 64 MiB.
    pub fn new(format: WireFormat) -> Self {
        Self::with_limit(format, MAX_FRAME)
    }

    /// Creates a cutter that accepts frames of up to `limit` bytes.
    pub fn with_limit(format: WireFormat, limit: usize) -> Self {
        Self {
            format,
            limit,
            partial: Vec::new(),
        }
    }

    /// Passes every frame that `chunk` completes to `each`, including its line break (JSON) or the
    /// length before it (protobuf). Copies a frame only if it spans several chunks.
    ///
    /// # Errors
    ///
    /// If a frame is too long. The frames before it have been passed to `each`, and the cutter must
    /// not be used any more.
    pub fn cut(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), FrameTooLong> {
        while !self.partial.is_empty() && !chunk.is_empty() {
            let (more, rest) = chunk.split_at(self.missing_bytes(chunk));
            self.check(self.partial.len() + more.len())?;
            self.partial.extend_from_slice(more);
            chunk = rest;
            if self.is_partial_complete()? {
                each(&self.partial);
                self.partial = Vec::new();
            }
        }
        while let Some(length) = self.frame_length(chunk)? {
            let (frame, rest) = chunk.split_at(length);
            each(frame);
            chunk = rest;
        }
        self.check(chunk.len())?;
        self.partial.extend_from_slice(chunk);
        Ok(())
    }

    /// Counts the buffered bytes of an incomplete frame.
    pub fn unfinished(&self) -> usize {
        self.partial.len()
    }

    /// Counts the bytes at the start of `chunk` that certainly belong to the partial frame.
    fn missing_bytes(&self, chunk: &[u8]) -> usize {
        let missing = match self.format {
            WireFormat::Json => memchr(b'\n', chunk).map_or(chunk.len(), |at| at + 1),
            WireFormat::Protobuf => {
                // Before the length is complete, only its own missing bytes are certain.
                let length = message_length(&self.partial).unwrap_or(LENGTH_PREFIX);
                length - self.partial.len()
            }
        };
        missing.min(chunk.len())
    }

    /// Returns true if the partial frame is complete.
    fn is_partial_complete(&self) -> Result<bool, FrameTooLong> {
        match self.format {
            WireFormat::Json => Ok(self.partial.ends_with(b"\n")),
            WireFormat::Protobuf => Ok(self.frame_length(&self.partial)?.is_some()),
        }
    }

    /// Returns the length of the first frame in `bytes`, in bytes; `None`
    /// if the frame is not complete.
    fn frame_length(&self, bytes: &[u8]) -> Result<Option<usize>, FrameTooLong> {
        let length = match self.format {
            WireFormat::Json => memchr(b'\n', bytes).map(|at| at + 1),
            WireFormat::Protobuf => message_length(bytes),
        };
        self.check(length.unwrap_or_default())?;
        Ok(length.filter(|length| *length <= bytes.len()))
    }

    fn check(&self, length: usize) -> Result<(), FrameTooLong> {
        if length > self.limit {
            Err(FrameTooLong(length))
        } else {
            Ok(())
        }
    }
}

/// Returns the length of a protobuf message, in bytes, including the length field before it; `None`
/// if the length field is incomplete.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let prefix = bytes.first_chunk::<LENGTH_PREFIX>()?;
    Some(u32::from_be_bytes(*prefix) as usize + LENGTH_PREFIX)
}

// === impl FrameType ===

impl FrameType {
    /// Returns the event type of a complete frame. Compares only the
    /// first letter of the type's name.
    pub fn of(format: WireFormat, frame: &[u8]) -> Self {
        let at = match format {
            WireFormat::Json => frame.strip_prefix(b"{\"type\":\""),
            WireFormat::Protobuf => frame.get(LENGTH_PREFIX + 2..),
        };
        match at.and_then(|name| name.first()) {
            Some(b'A') => Self::Added,
            Some(b'M') => Self::Modified,
            Some(b'D') => Self::Deleted,
            Some(b'B') => Self::Bookmark,
            Some(b'E') => Self::Error,
            _ => Self::Unknown,
        }
    }
}

// === impl VersionFinder ===

impl VersionFinder {
    /// Creates a finder for frames in `format`.
    pub fn new(format: WireFormat) -> Self {
        Self {
            format,
            name: Finder::new(b"\"resourceVersion\":\"").into_owned(),
        }
    }

    /// Returns the resource version of the object in `frame`; `None` if there is no
    /// version or it is not a number.
    pub fn find(&self, frame: &[u8]) -> Option<u64> {
        let digits = match self.format {
            WireFormat::Json => {
                let from = &frame[self.name.find(frame)? + self.name.needle().len()..];
                &from[..memchr(b'"', from)?]
            }
            WireFormat::Protobuf => {
                let event = frame.get(LENGTH_PREFIX..)?;
                let object = field(field(event, 2)?, 1)?;
                let object = field(object.strip_prefix(MAGIC)?, 2)?;
                field(field(object, 1)?, 6)?
            }
        };
        // `parse` would accept a leading plus sign.
        let is_number = digits.first()?.is_ascii_digit();
        let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
        text.parse().ok()
    }
}

/// Returns the content of the first length-delimited field `number` of a protobuf message.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        let tag = varint(&mut message)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut message)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        if tag == number << 3 | 2 {
            return Some(value);
        }
        message = rest;
    }
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(field: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short content");
        assert!(length < 0x80);
        [&[field << 3 | 2, length], content].concat()
    }

    fn protobuf(kind: &str, version: &str) -> Vec<u8> {
        let metadata = [message(1, b"name"), message(6, version.as_bytes())].concat();
        let unknown = [message(1, b"type"), message(2, &message(1, &metadata))].concat();
        let raw = message(1, &[MAGIC, &unknown].concat());
        let event = [message(1, kind.as_bytes()), message(2, &raw)].concat();
        let length = u32::try_from(event.len()).expect("a short event");
        [&length.to_be_bytes(), &event[..]].concat()
    }

    fn json(kind: &str, version: &str) -> Vec<u8> {
        let object =
            format!("{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{version}\"}}}}");
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
    }

    #[test]
    fn frames_do_not_depend_on_chunk_boundaries() {
        type EncodeFrame = fn(&str, &str) -> Vec<u8>;
        for (format, make) in [
            (WireFormat::Json, json as EncodeFrame),
            (WireFormat::Protobuf, protobuf),
        ] {
            let frames = [
                make("ADDED", "7"),
                make("MODIFIED", "123"),
                make("ERROR", "9"),
            ];
            let stream = frames.concat();
            for size in 1..=stream.len() {
                let mut cutter = FrameCutter::new(format);
                let mut found = Vec::new();
                for chunk in stream.chunks(size) {
                    let each = |frame: &[u8]| found.push(frame.to_vec());
                    cutter.cut(chunk, each).expect("short frames");
                }
                assert_eq!(found, frames, "{format:?} by {size}");
                assert_eq!(cutter.unfinished(), 0);
            }
        }
    }

    #[test]
    fn kinds_and_versions_are_read() {
        let table = [
            ("ADDED", FrameType::Added),
            ("MODIFIED", FrameType::Modified),
            ("DELETED", FrameType::Deleted),
            ("BOOKMARK", FrameType::Bookmark),
            ("ERROR", FrameType::Error),
            ("OTHER", FrameType::Unknown),
        ];
        for (name, kind) in table {
            assert_eq!(FrameType::of(WireFormat::Json, &json(name, "1")), kind);
            assert_eq!(
                FrameType::of(WireFormat::Protobuf, &protobuf(name, "1")),
                kind
            );
        }
        let (texts, messages) = (
            VersionFinder::new(WireFormat::Json),
            VersionFinder::new(WireFormat::Protobuf),
        );
        for (version, number) in [
            ("1", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("x", None),
            ("", None),
            ("+7", None),
            ("7x", None),
        ] {
            assert_eq!(texts.find(&json("ADDED", version)), number);
            assert_eq!(messages.find(&protobuf("ADDED", version)), number);
        }
        let frame = protobuf("ADDED", "77");
        for end in 0..frame.len() - 2 {
            assert_eq!(messages.find(&frame[..end]), None, "{end}");
        }
    }

    #[test]
    fn endless_frames_are_refused() {
        let mut cutter = FrameCutter::new(WireFormat::Protobuf);
        assert!(cutter.cut(&[0xff; 8], |_| ()).is_err());
        let mut cutter = FrameCutter::new(WireFormat::Json);
        let chunk = vec![b'x'; MAX_FRAME / 2 + 1];
        assert!(cutter.cut(&chunk, |_| ()).is_ok());
        assert!(cutter.cut(&chunk, |_| ()).is_err());
        // The limit applies to a frame, not to the chunk that completes it.
        let mut cutter = FrameCutter::with_limit(WireFormat::Json, 8);
        let mut frames = 0;
        for chunk in [&b"1234567"[..], b"\n12345\n12345\n12345"] {
            cutter.cut(chunk, |_| frames += 1).expect("short frames");
        }
        assert_eq!((frames, cutter.unfinished()), (3, 5));
    }
}
