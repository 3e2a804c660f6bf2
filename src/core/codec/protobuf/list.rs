//! Reads lists in protobuf.

use super::fields::{Fields, texts_of};
use crate::codec::Error;
use crate::codec::head::ListHead;

/// Reads a list message without its envelope, and calls `item` with the message of each item.
pub(crate) fn list<'a>(
    message: &'a [u8],
    mut item: impl FnMut(&'a [u8]) -> Result<(), Error>,
) -> Result<ListHead, Error> {
    let mut head = ListHead::default();
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => {
                let [version, token] = texts_of(field.bytes()?, [2, 3])?;
                head.resource_version = version.to_owned();
                head.continue_token = (!token.is_empty()).then(|| token.to_owned());
            }
            2 => item(field.bytes()?)?,
            _ => {}
        }
    }
    Ok(head)
}
