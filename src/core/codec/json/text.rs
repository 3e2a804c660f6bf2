//! The content of a JSON string, and the decoding of its escape sequences.

use std::borrow::Cow;

use crate::codec::Error;

/// The content of a JSON string without quotes, with escape sequences still encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl<'a> Text<'a> {
    /// Returns true if the decoded text equals `other`.
    pub(crate) fn is(self, other: &str) -> bool {
        // An escape sequence is longer than the character that it encodes.
        let may_be_escaped = self.0.len() > other.len() && self.0.contains(&b'\\');
        self.0 == other.as_bytes()
            || (may_be_escaped && self.unescape().is_ok_and(|text| text == other))
    }

    /// Decodes the escape sequences. A surrogate without its partner becomes U+FFFD, as in Go.
    pub(crate) fn unescape(self) -> Result<Cow<'a, str>, Error> {
        let text = std::str::from_utf8(self.0).map_err(|_| Error::Utf8)?;
        if !text.contains('\\') {
            return Ok(Cow::Borrowed(text));
        }
        let mut unescaped = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((plain, escape)) = rest.split_once('\\') {
            unescaped.push_str(plain);
            let (character, after) = read_escape(escape)?;
            unescaped.push(character);
            rest = after;
        }
        unescaped.push_str(rest);
        Ok(Cow::Owned(unescaped))
    }
}

/// Decodes the escape sequence in `text`, which starts after the backslash. Returns the character
/// and the rest.
fn read_escape(text: &str) -> Result<(char, &str), Error> {
    const MALFORMED: Error = Error::Json {
        expected: "an escape sequence",
        offset: 0,
    };
    let mut characters = text.chars();
    let character = match characters.next().ok_or(MALFORMED)? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return read_unicode_escape(characters.as_str()).ok_or(MALFORMED),
        other @ ('"' | '\\' | '/') => other,
        _ => return Err(MALFORMED),
    };
    Ok((character, characters.as_str()))
}

/// Decodes the escape sequence in `text`, which starts after the `\u`, together with a second `\u`
/// if the two are a surrogate pair. Returns the character and the rest.
fn read_unicode_escape(text: &str) -> Option<(char, &str)> {
    let (unit, rest) = read_hex(text)?;
    if let Some(character) = char::from_u32(unit) {
        return Some((character, rest));
    }
    let low = rest.strip_prefix("\\u").and_then(read_hex);
    match low {
        Some((low @ 0xDC00..=0xDFFF, after)) if unit < 0xDC00 => {
            let joined = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            Some((char::from_u32(joined)?, after))
        }
        _ => Some((char::REPLACEMENT_CHARACTER, rest)),
    }
}

fn read_hex(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let unit = u32::from_str_radix(digits, 16).ok().filter(|_| all_hex)?;
    Some((unit, &text[4..]))
}
