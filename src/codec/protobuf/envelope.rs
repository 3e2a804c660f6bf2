//! The envelope around objects, lists and Statuses.

use super::fields::Fields;
use super::fields::map_entry;
use crate::codec::Error;

/// What stands before every message that is not a watch event.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`: a message with its type.
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
    Some((fields.offset(), length))
}
