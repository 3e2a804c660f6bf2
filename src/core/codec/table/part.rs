//! Parts of an object's JSON text, which are read in place: no tree is built.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::Value;

use crate::codec::json;
use crate::codec::json::{Scanner, Text};

/// The text of an object that a row is printed from.
///
/// Only the parts that a printer reads are checked. If they are not JSON, the document is
/// malformed, and the row must not be used.
pub(super) struct Document<'a> {
    body: &'a [u8],
    is_malformed: Cell<bool>,
}

/// A value in the text of an object; absent if a member or an item was not found.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The text of the value; empty if it is absent.
    text: &'a [u8],
    /// True for an object without its opening brace.
    is_open: bool,
    is_malformed: &'a Cell<bool>,
}

/// The members of an object.
pub(super) struct Members<'a> {
    scanner: Scanner<'a>,
    state: Option<json::Members>,
    whole: Part<'a>,
}

/// The items of an array.
pub(super) struct Items<'a>(Members<'a>);

impl<'a> Document<'a> {
    /// Returns the document with the canonical JSON body of an object (see `api::Object`).
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self {
            body,
            is_malformed: Cell::new(false),
        }
    }

    /// Returns the complete object.
    pub(super) fn root(&self) -> Part<'_> {
        Part {
            text: self.body,
            is_open: self.body.first() != Some(&b'{'),
            is_malformed: &self.is_malformed,
        }
    }

    /// Returns true if something that was read is not JSON.
    pub(super) fn is_malformed(&self) -> bool {
        self.is_malformed.get()
    }
}

impl<'a> Part<'a> {
    /// Returns the member `name` of an object. The result is absent if there is no such member, or
    /// if this is no object.
    pub(super) fn at(self, name: &str) -> Self {
        let mut members = self.members();
        while let Some((key, text)) = members.next_raw() {
            if key.is(name) {
                return self.with(text);
            }
        }
        self.absent()
    }

    /// Returns the members of an object with these names, which are found in one pass.
    pub(super) fn all<const N: usize>(self, names: [&str; N]) -> [Self; N] {
        let mut found = [self.absent(); N];
        let mut missing = N;
        let mut members = self.members();
        while missing > 0
            && let Some((key, text)) = members.next_raw()
        {
            if let Some(position) = names.iter().position(|name| key.is(name)) {
                found[position] = self.with(text);
                missing -= 1;
            }
        }
        found
    }

    /// Returns the members of an object in their order, or no members if this is no object.
    pub(super) fn members(self) -> Members<'a> {
        let mut scanner = Scanner::new(self.text);
        let state = match (self.is_open, self.text.first()) {
            (true, Some(_)) => Some(json::Members::default()),
            (false, Some(b'{')) => scanner.object().ok(),
            _ => None,
        };
        Members {
            scanner,
            state,
            whole: self,
        }
    }

    /// Returns the items of an array, or no items if this is no array.
    pub(super) fn items(self) -> Items<'a> {
        let mut scanner = Scanner::new(self.text);
        let state = match self.text.first() {
            Some(b'[') => scanner.array().ok(),
            _ => None,
        };
        Items(Members {
            scanner,
            state,
            whole: self,
        })
    }

    /// Returns the text, without its quotes and escape sequences, or `None` if this is no text.
    pub(super) fn as_str(self) -> Option<Cow<'a, str>> {
        let text = self.quoted()?;
        let unescaped = text.unescape();
        if unescaped.is_err() {
            self.is_malformed.set(true);
        }
        unescaped.ok()
    }

    /// Returns the integer, or `None` if this is no integer that fits.
    pub(super) fn as_i64(self) -> Option<i64> {
        self.number()?.parse().ok()
    }

    /// Returns the digits of a number as they are encoded, or `None` if this is no number.
    pub(super) fn number(self) -> Option<&'a str> {
        let is_number = matches!(self.text.first(), Some(b'-' | b'0'..=b'9'));
        let text = std::str::from_utf8(self.text).ok();
        text.filter(|_| is_number && !self.is_open)
    }

    pub(super) fn is_object(self) -> bool {
        self.is_open || self.text.first() == Some(&b'{')
    }

    pub(super) fn is_array(self) -> bool {
        !self.is_open && self.text.first() == Some(&b'[')
    }

    pub(super) fn is_string(self) -> bool {
        self.quoted().is_some()
    }

    /// Returns true if the value is absent or null.
    pub(super) fn is_null(self) -> bool {
        matches!(self.text, b"" | b"null")
    }

    /// Returns true if the value is absent; null is not.
    pub(super) fn is_absent(self) -> bool {
        self.text.is_empty()
    }

    /// Returns the value as a tree, or `None` if it is absent or malformed.
    pub(super) fn tree(self) -> Option<Value> {
        if self.is_absent() {
            return None;
        }
        let parsed = if self.is_open {
            serde_json::from_slice(&[b"{", self.text].concat())
        } else {
            serde_json::from_slice(self.text)
        };
        if parsed.is_err() {
            self.is_malformed.set(true);
        }
        parsed.ok()
    }

    /// Creates an absent value of this document.
    pub(super) fn absent(self) -> Self {
        self.with(b"")
    }

    fn quoted(self) -> Option<Text<'a>> {
        match self.text {
            [b'"', inside @ .., b'"'] if !self.is_open => Some(Text(inside)),
            _ => None,
        }
    }

    fn with(self, text: &'a [u8]) -> Self {
        Self {
            text,
            is_open: false,
            is_malformed: self.is_malformed,
        }
    }
}

impl PartialEq<str> for Part<'_> {
    fn eq(&self, other: &str) -> bool {
        self.quoted().is_some_and(|text| text.is(other))
    }
}

impl PartialEq<&str> for Part<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl PartialEq<bool> for Part<'_> {
    fn eq(&self, other: &bool) -> bool {
        self.text == if *other { &b"true"[..] } else { b"false" }
    }
}

impl<'a> Members<'a> {
    fn next_raw(&mut self) -> Option<(Text<'a>, &'a [u8])> {
        let state = self.state.as_mut()?;
        let next = self.scanner.next_key(state);
        let member = next.and_then(|key| match key {
            Some(key) => Ok(Some((key.text, self.scanner.value()?))),
            None => Ok(None),
        });
        self.checked(member)
    }

    fn next_item(&mut self) -> Option<&'a [u8]> {
        let state = self.state.as_mut()?;
        let next = self.scanner.next_element(state);
        let item = next.and_then(|is_there| is_there.then(|| self.scanner.value()).transpose());
        self.checked(item)
    }

    /// Ends the iteration with the last element, and with an error, which makes the document
    /// malformed.
    fn checked<T>(&mut self, next: Result<Option<T>, crate::codec::Error>) -> Option<T> {
        let next = next.unwrap_or_else(|_| {
            self.whole.is_malformed.set(true);
            None
        });
        if next.is_none() {
            self.state = None;
        }
        next
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Part<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, text) = self.next_raw()?;
        let key = self.checked(key.unescape().map(Some))?;
        Some((key, self.whole.with(text)))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let text = self.0.next_item()?;
        Some(self.0.whole.with(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_whole_objects_and_in_those_without_a_brace() {
        let open =
            r#""metadata":{"name":"a\"b","n":-7,"f":1.5},"list":[1,"x",{}],"on":true,"no":null}"#;
        for body in [open.to_owned(), format!("{{{open}")] {
            let document = Document::new(body.as_bytes());
            let root = document.root();
            assert!(root.is_object() && !root.is_string() && !root.is_null());
            let [on, metadata, other] = root.all(["on", "metadata", "other"]);
            assert!(on == true && other.is_absent() && other.at("x").is_absent());
            assert_eq!(metadata.at("name").as_str().as_deref(), Some("a\"b"));
            assert!(metadata.at("name") == "a\"b" && metadata.at("n") != "-7");
            assert_eq!(metadata.at("n").as_i64(), Some(-7));
            assert_eq!(metadata.at("f").as_i64(), None);
            assert_eq!(metadata.at("f").number(), Some("1.5"));
            assert_eq!(root.at("list").items().count(), 3);
            assert_eq!(metadata.items().count(), 0);
            let keys: Vec<_> = root.members().map(|(key, _)| key).collect();
            assert_eq!(keys, ["metadata", "list", "on", "no"]);
            assert!(root.at("no").is_null() && !root.at("no").is_absent());
            let tree = root.tree().expect("JSON");
            assert_eq!(tree["metadata"]["n"], -7);
            assert!(!document.is_malformed());
        }
    }

    #[test]
    fn what_is_read_must_be_json() {
        for (body, path) in [
            ("", "a"),
            ("\"a\":", "a"),
            ("\"a\":{\"b\":1", "a"),
            ("\"a\" 1}", "a"),
            ("{\"b\":[}", "a"),
            ("{\"b\":1 \"a\":2}", "a"),
        ] {
            let document = Document::new(body.as_bytes());
            document.root().at(path);
            assert!(document.is_malformed() || body.is_empty(), "{body}");
        }
        let document = Document::new(b"{\"a\":\"\\x\"}");
        assert_eq!(document.root().at("a").as_str(), None);
        assert!(document.is_malformed());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let document = Document::new(deep.as_bytes());
        let a = document.root().at("a");
        assert!(!document.is_malformed() && a.is_array());
        assert!(a.tree().is_none() && document.is_malformed());
    }
}
