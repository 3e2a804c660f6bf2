//! Reads lists in protobuf.

use super::fields::Fields;
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
