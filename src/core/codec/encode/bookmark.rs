//! Encodes BOOKMARK frames with the members of the upstream's bookmarks.

use bytes::Bytes;

use crate::api::{ResourceVersion, WireFormat};
use crate::codec::decode::INITIAL_EVENTS_END;
use crate::codec::json::Scanner;
use crate::codec::protobuf::{ANNOTATIONS, Field, Fields, RESOURCE_VERSION, put_bytes, texts};
use crate::codec::{Error, json, protobuf};

/// A bookmark of the upstream without its resource version and its initial-events-end annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkTemplate(Shape);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    Json(JsonShape),
    Protobuf(ProtobufShape),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonShape {
    /// The object's text up to and including the opening brace of its metadata.
    open: Vec<u8>,
    /// The metadata's text before the digits of the resource version.
    before: Vec<u8>,
    /// The metadata's text after the digits of the resource version, without annotations.
    after: Vec<u8>,
    /// The encoded annotations that sort before and after the initial-events-end annotation, each
    /// with a comma behind it.
    annotations: [Vec<u8>; 2],
    /// The object's text from the closing brace of its metadata to the end.
    close: Vec<u8>,
    /// True if the keys are sorted, as in custom resources. Then annotations precede the version.
    is_sorted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProtobufShape {
    api_version: String,
    kind: String,
    /// The encoded fields of ObjectMeta before the resource version, ordered by number.
    before: Vec<u8>,
    /// The encoded fields of ObjectMeta between the resource version and the annotations.
    between: Vec<u8>,
    /// The encoded annotations that sort before and after the initial-events-end annotation.
    annotations: [Vec<u8>; 2],
    /// The encoded fields of ObjectMeta after the annotations.
    after: Vec<u8>,
    /// The encoded fields of the object except its metadata.
    close: Vec<u8>,
}

impl BookmarkTemplate {
    /// Makes a template from a complete BOOKMARK frame of the upstream.
    ///
    /// # Errors
    ///
    /// If the frame is not a watch event, or if a JSON frame's object has no resource version.
    pub fn from_frame(format: WireFormat, frame: &Bytes) -> Result<Self, Error> {
        match format {
            WireFormat::Json => {
                let object = json::raw_event(frame)?.object;
                Ok(Self(Shape::Json(JsonShape::of(object)?)))
            }
            WireFormat::Protobuf => Ok(Self(Shape::Protobuf(ProtobufShape::of(frame)?))),
        }
    }

    /// Makes a template of an object that has only kind, apiVersion and metadata.
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
                // Empty name, generateName, namespace, selfLink and uid; below, empty generation
                // and creationTimestamp. The API server writes these fields even if they are empty.
                before: vec![0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0, 0x2a, 0],
                between: vec![0x38, 0, 0x42, 0],
                ..ProtobufShape::default()
            })),
        }
    }

    /// Makes the template for a PartialObjectMetadata in `format` from this template.
    ///
    /// It has the metadata without annotations, because the API server adds annotations only to
    /// bookmarks of complete objects. Returns `None` if the minimal template is right: for sorted
    /// keys, and if the two formats differ.
    pub(super) fn partial(
        &self,
        format: WireFormat,
        kind: &str,
        api_version: &str,
    ) -> Option<Self> {
        Some(Self(match (&self.0, format) {
            (Shape::Json(shape), WireFormat::Json) if !shape.is_sorted => Shape::Json(JsonShape {
                before: shape.before.clone(),
                after: shape.after.clone(),
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
            let metadata = scanner.range()?;
            let (before, after, annotations) = split_metadata(&object[metadata.clone()])?;
            return Ok(Self {
                open: object[..=metadata.start].to_vec(),
                before,
                after,
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
            after: b"\"".to_vec(),
            annotations: Default::default(),
            close: b"}}".to_vec(),
            is_sorted,
        }
    }

    /// Encodes the member `annotations`; empty if there are no annotations.
    fn annotations(&self, initial_events_end: bool) -> Vec<u8> {
        let [before, after] = &self.annotations;
        let mark = if initial_events_end {
            format!("\"{INITIAL_EVENTS_END}\":\"true\",")
        } else {
            String::new()
        };
        let members = [before.as_slice(), mark.as_bytes(), after].concat();
        match members.strip_suffix(b",") {
            Some(members) => [b"\"annotations\":{", members, b"}"].concat(),
            None => Vec::new(),
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
            &self.after,
            &last,
            &self.close,
            b"}\n",
        ]
        .concat()
    }
}

/// The metadata's text before and after the digits of the resource version, and its annotations.
type SplitMetadata = (Vec<u8>, Vec<u8>, [Vec<u8>; 2]);

fn split_metadata(metadata: &[u8]) -> Result<SplitMetadata, Error> {
    let mut annotations = Default::default();
    let mut before = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    let mut scanner = Scanner::new(metadata);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.range()?;
        if key.text.is("annotations") {
            annotations = split_annotations(&metadata[value])?;
            continue;
        }
        let part = after.as_mut().unwrap_or(&mut before);
        if !part.is_empty() {
            part.push(b',');
        }
        if key.text.is("resourceVersion") {
            part.extend_from_slice(b"\"resourceVersion\":\"");
            after = Some(b"\"".to_vec());
        } else {
            part.extend_from_slice(&metadata[key.start..value.end]);
        }
    }
    let after = after.ok_or(Error::Missing("metadata.resourceVersion"))?;
    Ok((before, after, annotations))
}

/// Splits annotations into those that sort before and after the initial-events-end annotation.
fn split_annotations(annotations: &[u8]) -> Result<[Vec<u8>; 2], Error> {
    let mut split = <[Vec<u8>; 2]>::default();
    let mut scanner = Scanner::new(annotations);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.range()?;
        if !key.text.is(INITIAL_EVENTS_END) {
            let member = &annotations[key.start..value.end];
            let is_after = &member[1..] > INITIAL_EVENTS_END.as_bytes();
            let part = &mut split[usize::from(is_after)];
            part.extend_from_slice(member);
            part.push(b',');
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
                RESOURCE_VERSION => {}
                ANNOTATIONS => self.take_annotation(&field)?,
                ..=5 => self.before.extend_from_slice(field.whole),
                7..=11 => self.between.extend_from_slice(field.whole),
                _ => self.after.extend_from_slice(field.whole),
            }
        }
        Ok(())
    }

    fn take_annotation(&mut self, field: &Field<'_>) -> Result<(), Error> {
        for part in Fields::new(field.bytes()?) {
            let part = part?;
            if part.number == 1 && part.bytes()? != INITIAL_EVENTS_END.as_bytes() {
                let is_after = part.bytes()? > INITIAL_EVENTS_END.as_bytes();
                self.annotations[usize::from(is_after)].extend_from_slice(field.whole);
            }
        }
        Ok(())
    }

    fn frame(&self, rv: ResourceVersion, initial_events_end: bool) -> Vec<u8> {
        let mut metadata = self.before.clone();
        put_bytes(&mut metadata, RESOURCE_VERSION, rv.to_string().as_bytes());
        metadata.extend_from_slice(&self.between);
        metadata.extend_from_slice(&self.annotations[0]);
        if initial_events_end {
            let annotation = texts([INITIAL_EVENTS_END, "true"]);
            put_bytes(&mut metadata, ANNOTATIONS, &annotation);
        }
        metadata.extend_from_slice(&self.annotations[1]);
        metadata.extend_from_slice(&self.after);
        let mut object = Vec::new();
        put_bytes(&mut object, 1, &metadata);
        object.extend_from_slice(&self.close);
        let enveloped = protobuf::enveloped(&self.api_version, &self.kind, &object);
        protobuf::frame("BOOKMARK", &[&enveloped])
    }
}
