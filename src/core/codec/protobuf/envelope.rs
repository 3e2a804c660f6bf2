//! Reads the `runtime.Unknown` envelope around protobuf objects, lists and Statuses.

use super::fields::{Fields, texts_of};
use crate::codec::Error;

/// The first bytes of a protobuf object, list or Status, including the object in a watch event.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The fields of a `runtime.Unknown`: the encoded message, with its kind and apiVersion.
#[derive(Default)]
pub(crate) struct Envelope<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) raw: &'a [u8],
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
            1 => [envelope.api_version, envelope.kind] = texts_of(field.bytes()?, [1, 2])?,
            2 => envelope.raw = field.bytes()?,
            3 | 4 if !field.bytes()?.is_empty() => {
                return Err(Error::Protobuf("envelope has a content encoding or type"));
            }
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads the tag and length of an envelope's content. Returns the number of bytes read and the
/// content's length in bytes, or `None` if the next field of `bytes` is not the content.
pub(crate) fn content_start(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut fields = Fields::new(bytes);
    if fields.varint().ok()? != 2 << 3 | 2 {
        return None;
    }
    let length = usize::try_from(fields.varint().ok()?).ok()?;
    Some((fields.at, length))
}
