//! Reads watch events in protobuf.

use super::envelope::{Envelope, envelope};
use super::fields::Fields;
use crate::codec::Error;

/// The two fields of a watch event: its type, and its object in an envelope.
pub(crate) struct Event<'a> {
    pub(crate) event_type: &'a str,
    pub(crate) envelope: Envelope<'a>,
}

/// Checks and removes the four-byte length at the start of a watch frame.
pub(crate) fn unframed(frame: &[u8]) -> Result<&[u8], Error> {
    let (length, message) = frame
        .split_first_chunk::<4>()
        .ok_or(Error::Protobuf("frame has no length"))?;
    if u32::from_be_bytes(*length) as usize == message.len() {
        Ok(message)
    } else {
        Err(Error::Protobuf("frame's length differs from its prefix"))
    }
}

/// Reads a complete watch frame, including its length prefix.
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
