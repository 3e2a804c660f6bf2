//! A cursor over JSON text that builds no tree.
//!
//! Values that a caller reads are checked. A skipped value is only followed by its quotes and
//! brackets, so skipping accepts some texts that are not JSON. No input causes a panic or
//! recursion.

use std::borrow::Cow;
use std::ops::Range;

use super::skip::{container_end, string_end};
use super::text::Text;
use crate::codec::Error;

/// A cursor in a JSON text.
#[derive(Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

/// A member's key, and the offset of the key's opening quote.
pub(crate) struct Key<'a> {
    pub(crate) text: Text<'a>,
    pub(crate) start: usize,
}

/// The state of an iteration over an object's members or an array's elements.
#[derive(Default)]
pub(crate) struct Members {
    begun: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the text from offset `start` to the cursor.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        &self.text[start..self.at]
    }

    pub(super) fn malformed(&self, expected: &'static str) -> Error {
        Error::Json {
            expected,
            offset: self.at,
        }
    }

    /// Moves the cursor to the next byte that is not white space, and returns that byte.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    fn expect(&mut self, byte: u8, name: &'static str) -> Result<(), Error> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.malformed(name)),
        }
    }

    /// Moves the cursor behind an object's opening brace; fails if there is none.
    pub(crate) fn object(&mut self) -> Result<Members, Error> {
        self.expect(b'{', "an object")?;
        Ok(Members::default())
    }

    /// Moves the cursor behind an array's opening bracket; fails if there is none.
    pub(crate) fn array(&mut self) -> Result<Members, Error> {
        self.expect(b'[', "an array")?;
        Ok(Members::default())
    }

    /// Reads the next member's key and moves the cursor to the member's value. Returns `None` at
    /// the end of the object, with the cursor behind it.
    pub(crate) fn next_key(&mut self, members: &mut Members) -> Result<Option<Key<'a>>, Error> {
        if !self.next_item(members, b'}')? {
            return Ok(None);
        }
        self.peek();
        let start = self.at;
        let text = self.string()?;
        self.expect(b':', "a colon")?;
        self.peek();
        Ok(Some(Key { text, start }))
    }

    /// Moves the cursor to the next element and returns true, or behind the array and returns
    /// false.
    pub(crate) fn next_element(&mut self, members: &mut Members) -> Result<bool, Error> {
        self.next_item(members, b']')
    }

    fn next_item(&mut self, members: &mut Members, close: u8) -> Result<bool, Error> {
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if members.begun => self.at += 1,
            Some(_) if !members.begun => {}
            _ => return Err(self.malformed("a comma or the closing bracket")),
        }
        members.begun = true;
        self.peek();
        Ok(true)
    }

    /// Reads a string at the cursor; its escape sequences stay encoded.
    pub(crate) fn string(&mut self) -> Result<Text<'a>, Error> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let end = string_end(self.text, start).ok_or(self.malformed("a string's end"))?;
        self.at = end;
        Ok(Text(&self.text[start..end - 1]))
    }

    /// Reads a string at the cursor and decodes its escape sequences; null is the empty text.
    pub(crate) fn text_or_empty(&mut self) -> Result<Cow<'a, str>, Error> {
        if self.skip_null()? {
            return Ok(Cow::Borrowed(""));
        }
        self.string()?.unescape()
    }

    /// Moves the cursor behind a value that is null, and returns true; otherwise returns false.
    pub(crate) fn skip_null(&mut self) -> Result<bool, Error> {
        let is_null = self.peek() == Some(b'n');
        if is_null {
            self.skip()?;
        }
        Ok(is_null)
    }

    /// Moves the cursor to the value of the next member called `name`, and returns true, or behind
    /// the object and returns false.
    pub(crate) fn find(&mut self, members: &mut Members, name: &str) -> Result<bool, Error> {
        while let Some(key) = self.next_key(members)? {
            if key.text.is(name) {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    /// Moves the cursor behind a value.
    pub(crate) fn skip(&mut self) -> Result<(), Error> {
        self.range().map(|_| ())
    }

    /// Moves the cursor behind a value and returns the value's range in the text.
    pub(crate) fn range(&mut self) -> Result<Range<usize>, Error> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => {
                self.string()?;
            }
            Some(b'{' | b'[') => self.skip_container()?,
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => self.skip_literal(),
            _ => return Err(self.malformed("a value")),
        }
        Ok(start..self.at)
    }

    /// Moves the cursor behind a value and returns the value's text.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Error> {
        let range = self.range()?;
        Ok(&self.text[range])
    }

    fn skip_literal(&mut self) {
        let rest = &self.text[self.at..];
        // A literal must not contain a bracket or quote. Otherwise skipping a container would end
        // at another byte than reading its members does.
        let goes_on =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        self.at += rest
            .iter()
            .position(|byte| !goes_on(byte))
            .unwrap_or(rest.len());
    }

    fn skip_container(&mut self) -> Result<(), Error> {
        let end = container_end(self.text, self.at);
        self.at = end.map_err(|expected| self.malformed(expected))?;
        Ok(())
    }
}
