//! Reads lists in JSON.

use super::scanner::Scanner;
use crate::codec::Error;
use crate::codec::head::ListHead;

/// Reads a list's metadata, and calls `item` to read each item at the scanner's position.
pub(crate) fn list<'a>(
    text: &'a [u8],
    mut item: impl FnMut(&mut Scanner<'a>) -> Result<(), Error>,
) -> Result<ListHead, Error> {
    let mut head = ListHead::default();
    let mut has_items = false;
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"metadata" => list_metadata(&mut scanner, &mut head)?,
            b"items" => {
                has_items = true;
                items(&mut scanner, &mut item)?;
            }
            _ => scanner.skip()?,
        }
    }
    if has_items {
        Ok(head)
    } else {
        Err(Error::Missing("items"))
    }
}

/// Returns the offset directly after the opening bracket of `items` in `text`, which is the start
/// of a list. Returns `None` if `text` ends before that bracket.
pub(crate) fn items_start(text: &[u8]) -> Option<usize> {
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object().ok()?;
    while let Some(key) = scanner.next_key(&mut members).ok()? {
        if key.text.0 == b"items" && scanner.peek() == Some(b'[') {
            return Some(scanner.offset() + 1);
        }
        scanner.skip().ok()?;
    }
    None
}

fn items<'a>(
    scanner: &mut Scanner<'a>,
    item: &mut impl FnMut(&mut Scanner<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    if scanner.skip_null()? {
        return Ok(());
    }
    let mut elements = scanner.array()?;
    while scanner.next_element(&mut elements)? {
        item(scanner)?;
    }
    Ok(())
}

fn list_metadata(scanner: &mut Scanner<'_>, head: &mut ListHead) -> Result<(), Error> {
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"resourceVersion" => head.resource_version = scanner.text_or_empty()?.into_owned(),
            b"continue" => {
                let token = scanner.text_or_empty()?.into_owned();
                head.continue_token = (!token.is_empty()).then_some(token);
            }
            _ => scanner.skip()?,
        }
    }
    Ok(())
}
