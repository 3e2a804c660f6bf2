//! Iterates over the fields of a protobuf message without a schema.

use crate::codec::Error;

/// The field number of `resourceVersion` in ObjectMeta.
pub(crate) const RESOURCE_VERSION: u32 = 6;
/// The field number of `annotations` in ObjectMeta.
pub(crate) const ANNOTATIONS: u32 = 12;

/// An iterator over a message's fields. It ends after the first malformed field.
pub struct Fields<'a> {
    message: &'a [u8],
    /// The number of bytes of the message that were read.
    pub(super) at: usize,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// The number of the field in its message.
    pub number: u32,
    pub(super) value: Value<'a>,
    /// The field's bytes in the message: tag, length if any, and value.
    pub(crate) whole: &'a [u8],
}

#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
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
        let number = u32::try_from(tag >> 3).map_err(|_| Error::Protobuf("bad field number"))?;
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
    /// Returns the value: bytes, a text or a message.
    ///
    /// # Errors
    /// [`Error::Protobuf`] if the value is a number.
    pub fn bytes(&self) -> Result<&'a [u8], Error> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::Protobuf("field has another wire type")),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::Utf8)
    }

    /// Returns the value, which is a varint.
    ///
    /// # Errors
    /// [`Error::Protobuf`] if the value is something else.
    pub fn number_value(&self) -> Result<u64, Error> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => Err(Error::Protobuf("field has another wire type")),
        }
    }
}

/// Returns the texts of the fields `numbers` of a message. An absent text is empty, and the last one
/// of a field counts.
pub(crate) fn texts_of<const N: usize>(
    message: &[u8],
    numbers: [u32; N],
) -> Result<[&str; N], Error> {
    let mut texts = [""; N];
    for field in Fields::new(message) {
        let field = field?;
        if let Some(position) = numbers.iter().position(|number| *number == field.number) {
            texts[position] = field.text()?;
        }
    }
    Ok(texts)
}
