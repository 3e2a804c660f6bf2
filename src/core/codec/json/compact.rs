//! Removes white space between the tokens of a JSON text.

use std::borrow::Cow;

use super::skip::string_end;

/// Compacts `text` if it has a line break, which would end a JSON watch frame.
pub(crate) fn on_one_line(text: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\n', text) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(compact(text)),
    }
}

/// Copies `text` without the white space between tokens.
pub(crate) fn compact(text: &[u8]) -> Vec<u8> {
    let mut compacted = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {}
            b'"' => {
                at = string_end(text, at).unwrap_or(text.len());
                compacted.extend_from_slice(&text[start..at]);
            }
            other => compacted.push(*other),
        }
    }
    compacted
}
