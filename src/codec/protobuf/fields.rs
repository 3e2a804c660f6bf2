//! Objects, lists and watch events in protobuf, read by field numbers without a schema.

use std::borrow::Cow;

use crate::api::FieldValue;
use crate::codec::Error;
use crate::codec::field_tree::FieldTree;
use crate::codec::field_tree::Leaf;
use crate::codec::field_tree::Values;
use crate::codec::json::Head;
use crate::codec::json::ListHead;

/// What stands before every message that is not a watch event.
pub(crate) const MAGIC: &[u8] = b"k8s\0";
/// `resourceVersion` within ObjectMeta.
pub(crate) const RESOURCE_VERSION: u32 = 6;

/// Iterates over a message's fields.
pub(crate) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// Tag and value as they stand in the message.
    pub(crate) whole: &'a [u8],
}

#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// `runtime.Unknown`: a message with its type.
#[derive(Default)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) raw: &'a [u8],
}

/// A watch event's two fields.
pub(crate) struct Event<'a> {
    pub(crate) event_type: &'a str,
    pub(crate) envelope: Envelope<'a>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self
                .message
                .get(self.at)
                .ok_or(Error::Protobuf("message ends within a number"))?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Protobuf("number is longer than ten bytes"))
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Error> {
        let rest = &self.message[self.at..];
        let bytes = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length))
            .ok_or(Error::Protobuf("message ends within a field"))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn field(&mut self) -> Result<Field<'a>, Error> {
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Error::Protobuf("field number"))?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| Value::Fixed)?,
            _ => return Err(Error::Protobuf("unknown wire type")),
        };
        Ok(Field {
            number,
            value,
            whole: &self.message[start..self.at],
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    pub(crate) fn bytes(&self) -> Result<&'a [u8], Error> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Protobuf("field has another wire type")),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::Utf8)
    }

    pub(crate) fn number_value(&self) -> Result<u64, Error> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => Err(Error::Protobuf("field has another wire type")),
        }
    }
}

/// Opens the envelope of an object, list or Status.
pub(crate) fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Error> {
    let message = bytes
        .strip_prefix(MAGIC)
        .ok_or(Error::Protobuf("envelope prefix is missing"))?;
    let mut envelope = Envelope::default();
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            // A TypeMeta is apiVersion and kind in fields 1 and 2, which reads like a map entry.
            1 => (envelope.api_version, envelope.kind) = map_entry(field.bytes()?)?,
            2 => envelope.raw = field.bytes()?,
            3 | 4 if !field.bytes()?.is_empty() => {
                return Err(Error::Protobuf("envelope's content is encoded"));
            }
            _ => {}
        }
    }
    Ok(envelope)
}

/// How many bytes stand before an envelope's content if that comes next, and its length.
pub(crate) fn content_start(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut fields = Fields::new(bytes);
    if fields.varint().ok()? != 2 << 3 | 2 {
        return None;
    }
    let length = usize::try_from(fields.varint().ok()?).ok()?;
    Some((fields.at, length))
}

/// The key and value of a map from text to text.
pub(crate) fn map_entry(message: &[u8]) -> Result<(&str, &str), Error> {
    let (mut key, mut value) = ("", "");
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Reads an object without its envelope.
pub(crate) fn object<'a>(
    message: &'a [u8],
    tree: &FieldTree<u32>,
    mut values: Values<'a>,
) -> Result<Head<'a>, Error> {
    let mut head = Head::default();
    for field in Fields::new(message) {
        let field = field?;
        if field.number == 1 {
            metadata(field.bytes()?, &mut head)?;
        }
        visit(&field, tree, &mut values)?;
    }
    tree.settle(&mut values);
    head.values = values;
    Ok(head)
}

fn metadata<'a>(message: &'a [u8], head: &mut Head<'a>) -> Result<(), Error> {
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => head.name = field.text()?.into(),
            3 => head.namespace = field.text()?.into(),
            5 => head.uid = field.text()?.into(),
            RESOURCE_VERSION => head.resource_version = field.text()?.into(),
            11 => {
                let (key, value) = map_entry(field.bytes()?)?;
                head.labels.push((key.into(), value.into()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the field's values that `tree` knows; of a repeated field only the first element.
fn visit<'a>(
    field: &Field<'a>,
    tree: &FieldTree<u32>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    let Some(child) = tree.child(|number| *number == field.number) else {
        return Ok(());
    };
    for leaf in child.leaves() {
        if values[leaf.position].is_none() {
            values[leaf.position] = Some(scalar(field, *leaf)?);
        }
    }
    if child.has_children() {
        for inner in Fields::new(field.bytes()?) {
            visit(&inner?, child, values)?;
        }
        child.settle(values);
    }
    Ok(())
}

fn scalar<'a>(field: &Field<'a>, leaf: Leaf) -> Result<Cow<'a, str>, Error> {
    match (leaf.value, field.value) {
        (FieldValue::Boolean, Value::Varint(number)) => Ok(match number {
            0 => "false",
            _ => "true",
        }
        .into()),
        (_, Value::Varint(number)) => Ok(number.cast_signed().to_string().into()),
        _ => Ok(field.text()?.into()),
    }
}

/// Reads a list without its envelope, giving each item's message to `item`.
pub(crate) fn list<'a>(
    message: &'a [u8],
    mut item: impl FnMut(&'a [u8]) -> Result<(), Error>,
) -> Result<ListHead, Error> {
    let mut head = ListHead::default();
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => list_metadata(field.bytes()?, &mut head)?,
            2 => item(field.bytes()?)?,
            _ => {}
        }
    }
    Ok(head)
}

fn list_metadata(message: &[u8], head: &mut ListHead) -> Result<(), Error> {
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            2 => head.resource_version = field.text()?.to_owned(),
            3 => {
                let token = field.text()?;
                head.continue_token = (!token.is_empty()).then(|| token.to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A watch frame without its length.
pub(crate) fn unframed(frame: &[u8]) -> Result<&[u8], Error> {
    let (length, message) = frame
        .split_first_chunk::<4>()
        .ok_or(Error::Protobuf("frame has no length"))?;
    match u32::from_be_bytes(*length) as usize == message.len() {
        true => Ok(message),
        false => Err(Error::Protobuf("frame has another length than it says")),
    }
}

/// Reads a whole watch frame.
pub(crate) fn event(frame: &[u8]) -> Result<Event<'_>, Error> {
    let mut event_type = None;
    let mut object = None;
    for field in Fields::new(unframed(frame)?) {
        let field = field?;
        match field.number {
            1 => event_type = Some(field.text()?),
            2 => object = Some(raw_extension(field.bytes()?)?),
            _ => {}
        }
    }
    Ok(Event {
        event_type: event_type.ok_or(Error::Missing("type"))?,
        envelope: envelope(object.ok_or(Error::Missing("object"))?)?,
    })
}

fn raw_extension(message: &[u8]) -> Result<&[u8], Error> {
    let mut raw = None;
    for field in Fields::new(message) {
        let field = field?;
        if field.number == 1 {
            raw = Some(field.bytes()?);
        }
    }
    raw.ok_or(Error::Missing("object"))
}
