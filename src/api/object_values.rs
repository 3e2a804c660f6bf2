//! What reads select by, in few bytes: each text is its place in the object's body, where it can be.

use std::borrow::Cow;

/// What was read of an object, beside its key and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectValues<'a> {
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.labels`.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Values of the kind's selectable fields, in the order of `SelectableFields`.
    pub fields: Vec<Cow<'a, str>>,
}

/// [`ObjectValues`] in one allocation.
///
/// Two numbers, how many fields there are and how many bytes stand before the labels; then the
/// texts: the uid, the fields, and keys and values of the labels in the order of keys. A text is
/// twice its length, plus one if its place in the body follows and not the text.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PackedValues(Box<[u8]>);

/// Reads texts one by one.
#[derive(Clone)]
pub(super) struct Texts<'a> {
    packed: &'a [u8],
    body: &'a [u8],
}

// === impl PackedValues ===

impl PackedValues {
    /// Packs `values`; those that are slices of `source` are found in a body that equals it.
    pub(super) fn new(values: &ObjectValues<'_>, source: &[u8]) -> Self {
        let mut labels: Vec<_> = values.labels.iter().collect();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        let mut packed = Vec::with_capacity(128);
        put_text(&mut packed, &values.uid, source);
        for field in &values.fields {
            put_text(&mut packed, field, source);
        }
        let mut front = Vec::with_capacity(4);
        put_number(&mut front, values.fields.len());
        put_number(&mut front, packed.len());
        for (key, value) in labels {
            put_text(&mut packed, key, source);
            put_text(&mut packed, value, source);
        }
        Self([front, packed].concat().into())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn uid<'a>(&'a self, body: &'a [u8]) -> &'a str {
        let (_, mut texts, _) = self.parts(body);
        texts.next().unwrap_or_default()
    }

    /// How many fields there are, and their texts with what follows them.
    pub(super) fn fields<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>) {
        let (count, mut texts, _) = self.parts(body);
        texts.pass();
        (count, texts)
    }

    /// Keys and values in turn.
    pub(super) fn labels<'a>(&'a self, body: &'a [u8]) -> Texts<'a> {
        self.parts(body).2
    }

    fn parts<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>, Texts<'a>) {
        let mut packed = &*self.0;
        let count = number(&mut packed);
        let before_labels = number(&mut packed);
        let (front, labels) = packed.split_at(before_labels);
        let texts = |packed| Texts { packed, body };
        (count, texts(front), texts(labels))
    }
}

// === impl Texts ===

impl<'a> Texts<'a> {
    /// The next text's bytes.
    pub(super) fn next_bytes(&mut self) -> Option<&'a [u8]> {
        if self.packed.is_empty() {
            return None;
        }
        let head = number(&mut self.packed);
        let length = head >> 1;
        if head & 1 == 1 {
            let at = number(&mut self.packed);
            return Some(&self.body[at..at + length]);
        }
        let (text, rest) = self.packed.split_at(length);
        self.packed = rest;
        Some(text)
    }

    /// Passes over a text.
    pub(super) fn pass(&mut self) {
        self.next_bytes();
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = str::from_utf8(self.next_bytes()?);
        Some(text.expect("it was packed as a text, and the body never changes"))
    }
}

fn put_text(packed: &mut Vec<u8>, text: &str, source: &[u8]) {
    match place(text, source) {
        // A place takes up to that many bytes itself.
        Some(at) if text.len() > 2 => {
            put_number(packed, text.len() << 1 | 1);
            put_number(packed, at);
        }
        _ => {
            put_number(packed, text.len() << 1);
            packed.extend_from_slice(text.as_bytes());
        }
    }
}

/// Where `text` stands in `source`, if it is a slice of it.
fn place(text: &str, source: &[u8]) -> Option<usize> {
    let at = text.as_ptr().addr().checked_sub(source.as_ptr().addr())?;
    let end = at.checked_add(text.len())?;
    (source.get(at..end)? == text.as_bytes()).then_some(at)
}

fn put_number(packed: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn number(packed: &mut &[u8]) -> usize {
    let mut number = 0;
    let mut shift = 0;
    while let Some((byte, rest)) = packed.split_first() {
        *packed = rest;
        number |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            break;
        }
    }
    number
}
