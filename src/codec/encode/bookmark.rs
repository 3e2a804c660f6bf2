//! BOOKMARK frames, printed in the shape that upstream gives them.

use bytes::Bytes;

use crate::api::ResourceVersion;
use crate::api::WireFormat;
use crate::codec::Error;
use crate::codec::decode::INITIAL_EVENTS_END;
use crate::codec::json;
use crate::codec::json::Scanner;
use crate::codec::protobuf;
use crate::codec::protobuf::Field;
use crate::codec::protobuf::Fields;
use crate::codec::protobuf::put_bytes;

/// A bookmark of upstream's without its resource version and end mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkTemplate(Shape);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Json(JsonShape),
    Protobuf(ProtobufShape),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonShape {
    /// The object up to and including the brace that opens its metadata.
    open: Vec<u8>,
    /// Metadata before the resource version's digits.
    before: Vec<u8>,
    /// Metadata behind them.
    behind: Vec<u8>,
    /// The members of annotations that sort before the end mark, and those behind it.
    annotations: [Vec<Vec<u8>>; 2],
    /// The rest of the object from the brace that closes its metadata.
    close: Vec<u8>,
    /// Keys are sorted, so that annotations stand first.
    is_sorted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProtobufShape {
    api_version: String,
    kind: String,
    /// Fields of ObjectMeta below the resource version.
    before: Vec<u8>,
    /// Fields of ObjectMeta between resource version and annotations.
    between: Vec<u8>,
    /// Annotations that sort before the end mark, and those behind it.
    annotations: [Vec<u8>; 2],
    /// Fields of ObjectMeta above annotations.
    behind: Vec<u8>,
    /// All fields of the object but its metadata.
    close: Vec<u8>,
}

impl BookmarkTemplate {
    /// Takes the shape of a whole BOOKMARK frame received from upstream.
    ///
    /// # Errors
    ///
    /// When the frame is no watch event, or its object has no resource version.
    pub fn from_frame(format: WireFormat, frame: &Bytes) -> Result<Self, Error> {
        match format {
            WireFormat::Json => {
                let object = json::raw_event(frame)?.object;
                Ok(Self(Shape::Json(JsonShape::of(object)?)))
            }
            WireFormat::Protobuf => Ok(Self(Shape::Protobuf(ProtobufShape::of(frame)?))),
        }
    }

    /// The shape that carries nothing but type and metadata.
    pub(crate) fn minimal(
        format: WireFormat,
        kind: &str,
        api_version: &str,
        is_sorted: bool,
    ) -> Self {
        match format {
            WireFormat::Json => Self(Shape::Json(JsonShape::minimal(
                kind,
                api_version,
                is_sorted,
            ))),
            WireFormat::Protobuf => Self(Shape::Protobuf(ProtobufShape {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                // name, generateName, namespace, selfLink and uid; generation and creation time:
                // the server writes what is empty too.
                before: vec![0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0],
                between: vec![0x38, 0, 0x42, 0],
                ..ProtobufShape::default()
            })),
        }
    }

    /// The same bookmark with nothing but its metadata, which goes without annotations: those of an
    /// object that is none are made for its whole kind; `None` where that tells no more than a
    /// minimal one.
    pub(super) fn partial(
        &self,
        format: WireFormat,
        kind: &str,
        api_version: &str,
    ) -> Option<Self> {
        Some(Self(match (&self.0, format) {
            (Shape::Json(shape), WireFormat::Json) if !shape.is_sorted => Shape::Json(JsonShape {
                before: shape.before.clone(),
                behind: shape.behind.clone(),
                ..JsonShape::minimal(kind, api_version, false)
            }),
            (Shape::Protobuf(shape), WireFormat::Protobuf) => Shape::Protobuf(ProtobufShape {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                close: Vec::new(),
                annotations: Default::default(),
                ..shape.clone()
            }),
            _ => return None,
        }))
    }

    /// A whole BOOKMARK frame.
    pub(super) fn frame(&self, rv: ResourceVersion, initial_events_end: bool) -> Bytes {
        match &self.0 {
            Shape::Json(shape) => shape.frame(rv, initial_events_end).into(),
            Shape::Protobuf(shape) => shape.frame(rv, initial_events_end).into(),
        }
    }
}

impl JsonShape {
    fn of(object: &[u8]) -> Result<Self, Error> {
        let mut scanner = Scanner::new(object);
        let mut members = scanner.object()?;
        let mut is_sorted = None;
        while let Some(key) = scanner.next_key(&mut members)? {
            is_sorted.get_or_insert(!key.text.is("kind"));
            if !key.text.is("metadata") {
                scanner.skip()?;
                continue;
            }
            let metadata = scanner.skip()?;
            let (before, behind, annotations) = split_metadata(&object[metadata.clone()])?;
            return Ok(Self {
                open: object[..=metadata.start].to_vec(),
                before,
                behind,
                annotations,
                close: object[metadata.end - 1..].to_vec(),
                is_sorted: is_sorted.unwrap_or(false),
            });
        }
        Err(Error::Missing("metadata"))
    }

    fn minimal(kind: &str, api_version: &str, is_sorted: bool) -> Self {
        let (kind, api_version) = (json::quoted(kind), json::quoted(api_version));
        let open = if is_sorted {
            format!("{{\"apiVersion\":{api_version},\"kind\":{kind},\"metadata\":{{")
        } else {
            format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{{")
        };
        Self {
            open: open.into(),
            before: b"\"resourceVersion\":\"".to_vec(),
            behind: b"\"".to_vec(),
            annotations: Default::default(),
            close: b"}}".to_vec(),
            is_sorted,
        }
    }

    /// The member `annotations`; nothing when there are none.
    fn annotations(&self, initial_events_end: bool) -> Vec<u8> {
        let [before, behind] = &self.annotations;
        let mark = initial_events_end.then(|| format!("\"{INITIAL_EVENTS_END}\":\"true\""));
        let mark = mark.as_ref().map(|mark| mark.as_bytes());
        let before = before.iter().map(Vec::as_slice);
        let behind = behind.iter().map(Vec::as_slice);
        let members: Vec<&[u8]> = before.chain(mark).chain(behind).collect();
        if members.is_empty() {
            Vec::new()
        } else {
            [
                b"\"annotations\":{",
                members.join(&b","[..]).as_slice(),
                b"}",
            ]
            .concat()
        }
    }

    fn frame(&self, rv: ResourceVersion, initial_events_end: bool) -> Vec<u8> {
        let annotations = self.annotations(initial_events_end);
        let (first, last) = match (annotations.is_empty(), self.is_sorted) {
            (true, _) => (Vec::new(), Vec::new()),
            (false, true) => ([annotations.as_slice(), b","].concat(), Vec::new()),
            (false, false) => (Vec::new(), [b",", annotations.as_slice()].concat()),
        };
        [
            b"{\"type\":\"BOOKMARK\",\"object\":",
            self.open.as_slice(),
            &first,
            &self.before,
            rv.to_string().as_bytes(),
            &self.behind,
            &last,
            &self.close,
            b"}\n",
        ]
        .concat()
    }
}

/// Metadata's members before the resource version's digits and behind them, and its annotations.
type SplitMetadata = (Vec<u8>, Vec<u8>, [Vec<Vec<u8>>; 2]);

fn split_metadata(metadata: &[u8]) -> Result<SplitMetadata, Error> {
    let mut annotations = Default::default();
    let mut before = Vec::new();
    let mut behind: Option<Vec<u8>> = None;
    let mut scanner = Scanner::new(metadata);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("annotations") {
            annotations = split_annotations(&metadata[value])?;
            continue;
        }
        let part = behind.as_mut().unwrap_or(&mut before);
        if !part.is_empty() {
            part.push(b',');
        }
        if key.text.is("resourceVersion") {
            part.extend_from_slice(b"\"resourceVersion\":\"");
            behind = Some(b"\"".to_vec());
        } else {
            part.extend_from_slice(&metadata[key.start..value.end]);
        }
    }
    let behind = behind.ok_or(Error::Missing("metadata.resourceVersion"))?;
    Ok((before, behind, annotations))
}

/// The members of annotations without the end mark: those that sort before it, and behind it.
fn split_annotations(annotations: &[u8]) -> Result<[Vec<Vec<u8>>; 2], Error> {
    let mut split = <[Vec<Vec<u8>>; 2]>::default();
    let mut scanner = Scanner::new(annotations);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if !key.text.is(INITIAL_EVENTS_END) {
            let member = &annotations[key.start..value.end];
            let is_behind = &member[1..] > INITIAL_EVENTS_END.as_bytes();
            split[usize::from(is_behind)].push(member.to_vec());
        }
    }
    Ok(split)
}

impl ProtobufShape {
    fn of(frame: &[u8]) -> Result<Self, Error> {
        let envelope = protobuf::event(frame)?.envelope;
        let mut shape = Self {
            api_version: envelope.api_version.to_owned(),
            kind: envelope.kind.to_owned(),
            ..Self::default()
        };
        for field in Fields::new(envelope.raw) {
            let field = field?;
            match field.number {
                1 => shape.take_metadata(field.bytes()?)?,
                _ => shape.close.extend_from_slice(field.whole),
            }
        }
        Ok(shape)
    }

    fn take_metadata(&mut self, metadata: &[u8]) -> Result<(), Error> {
        for field in Fields::new(metadata) {
            let field = field?;
            match field.number {
                6 => {}
                12 => self.take_annotation(&field)?,
                ..=5 => self.before.extend_from_slice(field.whole),
                7..=11 => self.between.extend_from_slice(field.whole),
                _ => self.behind.extend_from_slice(field.whole),
            }
        }
        Ok(())
    }

    fn take_annotation(&mut self, field: &Field<'_>) -> Result<(), Error> {
        for part in Fields::new(field.bytes()?) {
            let part = part?;
            if part.number == 1 && part.bytes()? != INITIAL_EVENTS_END.as_bytes() {
                let is_behind = part.bytes()? > INITIAL_EVENTS_END.as_bytes();
                self.annotations[usize::from(is_behind)].extend_from_slice(field.whole);
            }
        }
        Ok(())
    }

    fn frame(&self, rv: ResourceVersion, initial_events_end: bool) -> Vec<u8> {
        let mut metadata = self.before.clone();
        put_bytes(&mut metadata, 6, rv.to_string().as_bytes());
        metadata.extend_from_slice(&self.between);
        metadata.extend_from_slice(&self.annotations[0]);
        if initial_events_end {
            let mut annotation = Vec::new();
            put_bytes(&mut annotation, 1, INITIAL_EVENTS_END.as_bytes());
            put_bytes(&mut annotation, 2, b"true");
            put_bytes(&mut metadata, 12, &annotation);
        }
        metadata.extend_from_slice(&self.annotations[1]);
        metadata.extend_from_slice(&self.behind);
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &metadata);
        object.extend_from_slice(&self.close);
        let enveloped = protobuf::enveloped(&self.api_version, &self.kind, &object);
        protobuf::frame("BOOKMARK", &[&enveloped])
    }
}
