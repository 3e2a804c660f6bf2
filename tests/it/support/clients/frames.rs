//! Decodes lists and watch events in both wire formats. It does not use kubefan's codec, because a
//! test with that codec could not find the codec's mistakes.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";

/// A wire format of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Protobuf,
}

impl Format {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => PROTOBUF,
        }
    }

    pub(crate) fn accept(self) -> HeaderMap {
        accept(self.media_type().to_owned())
    }

    pub(crate) fn accept_watch(self) -> HeaderMap {
        match self {
            Self::Json => self.accept(),
            Self::Protobuf => accept(format!("{PROTOBUF};stream=watch")),
        }
    }
}

fn accept(media_type: String) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("accept", media_type.parse().expect("a media type"));
    headers
}

/// An object of a list or a watch event, as tests compare objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// `namespace/name`, or `name` for an object without a namespace.
    pub(crate) key: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// The bytes of the object. JSON is without `kind` and `apiVersion`, which lists leave out, and
    /// has sorted keys.
    pub(crate) body: Bytes,
}

/// A decoded list: its resourceVersion and its items in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) resource_version: String,
    pub(crate) items: Vec<Item>,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Added(Item),
    Modified(Item),
    Deleted(Item),
    Bookmark {
        resource_version: String,
        initial_events_end: bool,
    },
    Error {
        code: i64,
        message: String,
    },
}

/// Decodes a list's body.
///
/// # Panics
/// Panics if the body is not a list.
pub(crate) fn decode_list(format: Format, body: &[u8]) -> List {
    match format {
        Format::Json => {
            let list: Value = serde_json::from_slice(body).expect("a JSON list");
            let items = list["items"]
                .as_array()
                .expect("items")
                .iter()
                .map(json_item)
                .collect();
            List {
                resource_version: text(&list["metadata"]["resourceVersion"]),
                items,
            }
        }
        Format::Protobuf => {
            let raw = unknown_raw(body);
            let list_meta = fields(&raw)
                .find(|(number, _)| *number == 1)
                .map(|(_, b)| b);
            let items = fields(&raw).filter(|(number, _)| *number == 2);
            List {
                // Field 2 of ListMeta is the resourceVersion.
                resource_version: string_field(list_meta.unwrap_or_default(), 2),
                items: items.map(|(_, bytes)| protobuf_item(bytes)).collect(),
            }
        }
    }
}

/// Reads a watch's body event by event.
#[derive(Debug)]
pub(crate) struct WatchReader {
    body: Incoming,
    buffer: BytesMut,
    format: Format,
}

impl WatchReader {
    pub(crate) fn new(body: Incoming, format: Format) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            format,
        }
    }

    /// Reads the next event. Returns `Ok(None)` if the stream ended
    /// properly after a complete frame.
    ///
    /// # Errors
    /// The connection broke, or the stream ended inside a frame.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, String> {
        Ok(self.next_frame().await?.map(|(event, _)| event))
    }

    /// Reads the next event together with the bytes of its frame. End and errors are as in
    /// [`Self::next`].
    pub(crate) async fn next_frame(&mut self) -> Result<Option<(Event, Bytes)>, String> {
        loop {
            if let Some(frame) = self.split_frame() {
                return Ok(Some((decode_event(self.format, &frame), frame)));
            }
            match self.body.frame().await {
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    return Err(format!(
                        "{} bytes of a frame, then the end",
                        self.buffer.len()
                    ));
                }
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(frame)) => {
                    self.buffer
                        .extend_from_slice(&frame.into_data().unwrap_or_default());
                }
            }
        }
    }

    fn split_frame(&mut self) -> Option<Bytes> {
        match self.format {
            Format::Json => {
                let end = memchr::memchr(b'\n', &self.buffer)?;
                Some(self.buffer.split_to(end + 1).freeze())
            }
            Format::Protobuf => {
                let length = u32::from_be_bytes(*self.buffer.first_chunk::<4>()?) as usize;
                if self.buffer.len() < 4 + length {
                    return None;
                }
                self.buffer.advance(4);
                Some(self.buffer.split_to(length).freeze())
            }
        }
    }
}

fn decode_event(format: Format, frame: &[u8]) -> Event {
    match format {
        Format::Json => {
            let event: Value = serde_json::from_slice(frame)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(frame)));
            let object = &event["object"];
            match event["type"].as_str().unwrap_or_default() {
                "ADDED" => Event::Added(json_item(object)),
                "MODIFIED" => Event::Modified(json_item(object)),
                "DELETED" => Event::Deleted(json_item(object)),
                "BOOKMARK" => Event::Bookmark {
                    resource_version: text(&object["metadata"]["resourceVersion"]),
                    initial_events_end: object["metadata"]["annotations"]["k8s.io/initial-events-end"]
                        == "true",
                },
                "ERROR" => Event::Error {
                    code: object["code"].as_i64().unwrap_or_default(),
                    message: text(&object["message"]),
                },
                other => panic!("event type {other:?}"),
            }
        }
        Format::Protobuf => decode_protobuf_event(frame),
    }
}

fn decode_protobuf_event(frame: &[u8]) -> Event {
    let raw_extension = bytes_field(frame, 2);
    let raw = unknown_raw(&bytes_field(&raw_extension, 1));
    match string_field(frame, 1).as_str() {
        "ADDED" => Event::Added(protobuf_item(&raw)),
        "MODIFIED" => Event::Modified(protobuf_item(&raw)),
        "DELETED" => Event::Deleted(protobuf_item(&raw)),
        "BOOKMARK" => {
            let meta = bytes_field(&raw, 1);
            // Field 12 of ObjectMeta is the map of annotations.
            let annotations = fields(&meta).filter(|(number, _)| *number == 12);
            let is_end = |entry| string_field(entry, 1) == "k8s.io/initial-events-end";
            Event::Bookmark {
                resource_version: string_field(&meta, 6),
                initial_events_end: annotations.map(|(_, entry)| entry).any(is_end),
            }
        }
        "ERROR" => Event::Error {
            code: code_field(&raw),
            message: string_field(&raw, 3),
        },
        other => panic!("event type {other:?}"),
    }
}

/// Splits a protobuf list into its continue token and the rest: the kind and the items. `None` if
/// the body is not a list.
pub(crate) fn split_list(body: &[u8]) -> Option<(String, Vec<Bytes>)> {
    let unknown = body.strip_prefix(MAGIC)?;
    let type_meta = bytes_field(unknown, 1);
    let kind = string_field(&type_meta, 2);
    if !kind.ends_with("List") {
        return None;
    }
    let raw = bytes_field(unknown, 2);
    // Only lists of meta.k8s.io/v1beta1 have their ListMeta in field 2, after the items.
    let is_beta = string_field(&type_meta, 1) == "meta.k8s.io/v1beta1";
    let metadata = if is_beta { 2 } else { 1 };
    let token = string_field(&bytes_field(&raw, metadata), 3);
    let items = fields(&raw).filter(|(number, _)| *number != metadata);
    let items = items.map(|(_, bytes)| Bytes::copy_from_slice(bytes));
    Some((
        token,
        [Bytes::from(kind)].into_iter().chain(items).collect(),
    ))
}

/// Splits the body of a protobuf watch into frames; the bool is true for a bookmark.
pub(crate) fn split_watch(mut body: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(length) = body.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let frame = body[4..].get(..length).unwrap_or(&body[4..]);
        frames.push((string_field(frame, 1) == "BOOKMARK", frame.to_vec()));
        body = &body[4 + frame.len()..];
    }
    frames
}

/// Returns the fields of a protobuf bookmark without its resourceVersion: the fields of the
/// envelope, of the metadata, and of the rest of the object, in order.
pub(crate) fn bookmark_fields(frame: &[u8]) -> Vec<Vec<(u64, Bytes)>> {
    let kept = |message: &[u8], without: u64| -> Vec<(u64, Bytes)> {
        let kept = fields(message).filter(|(number, _)| *number != without);
        kept.map(|(number, bytes)| (number, Bytes::copy_from_slice(bytes)))
            .collect()
    };
    let envelope = bytes_field(&bytes_field(frame, 2), 1);
    let unknown = envelope.strip_prefix(MAGIC).expect("the magic");
    let object = bytes_field(unknown, 2);
    // Field 6 of ObjectMeta is the resourceVersion.
    vec![
        kept(unknown, 2),
        kept(&bytes_field(&object, 1), 6),
        kept(&object, 1),
    ]
}

fn json_item(object: &Value) -> Item {
    let metadata = &object["metadata"];
    let mut body = object.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("kind");
        body.remove("apiVersion");
    }
    // Objects are compared as texts, and frames and lists may have their keys in different orders.
    body.sort_all_objects();
    Item {
        key: key(&text(&metadata["namespace"]), &text(&metadata["name"])),
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        body: body.to_string().into(),
    }
}

fn protobuf_item(object: &[u8]) -> Item {
    let meta = bytes_field(object, 1);
    Item {
        key: key(&string_field(&meta, 3), &string_field(&meta, 1)),
        uid: string_field(&meta, 5),
        resource_version: string_field(&meta, 6),
        body: Bytes::copy_from_slice(object),
    }
}

fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the object's bytes inside the envelope. The envelope is `k8s\0` and a runtime.Unknown,
/// and field 2 of the runtime.Unknown is the object.
fn unknown_raw(envelope: &[u8]) -> Vec<u8> {
    let unknown = envelope
        .strip_prefix(MAGIC)
        .expect("the magic of Kubernetes protobuf");
    bytes_field(unknown, 2)
}

fn bytes_field(message: &[u8], wanted: u64) -> Vec<u8> {
    let found = fields(message).find(|(number, _)| *number == wanted);
    found.map(|(_, bytes)| bytes.to_vec()).unwrap_or_default()
}

fn string_field(message: &[u8], wanted: u64) -> String {
    String::from_utf8(bytes_field(message, wanted)).expect("text")
}

/// Returns the code of a protobuf Status, which is its field 6.
fn code_field(status: &[u8]) -> i64 {
    let mut rest = status;
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = varint(&mut rest);
        match tag {
            0x30 => return i64::try_from(value).unwrap_or_default(),
            tag if tag & 7 == 2 => rest = &rest[usize::try_from(value).expect("a length")..],
            _ => {}
        }
    }
    0
}

/// Returns the length-delimited fields of a protobuf message, in order.
fn fields(message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let tag = varint(&mut rest);
            match tag & 7 {
                0 => drop(varint(&mut rest)),
                1 => rest = &rest[8..],
                2 => {
                    let length = usize::try_from(varint(&mut rest)).expect("a length");
                    let (bytes, after) = rest.split_at(length);
                    rest = after;
                    return Some((tag >> 3, bytes));
                }
                5 => rest = &rest[4..],
                wire_type => panic!("wire type {wire_type}"),
            }
        }
        None
    })
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}
