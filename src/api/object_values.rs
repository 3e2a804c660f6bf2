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

/// [`ObjectValues`] in one piece.
///
/// Two numbers, how many fields there are and how many bytes stand before the labels; then the
/// texts: the uid, the fields, and keys and values of the labels in the order of keys. A text is
/// twice its length, plus one if its place in the body follows and not the text: how far behind
/// the end of the place before, or in front of it.
#[derive(Clone)]
pub(super) enum PackedValues {
    /// Few bytes, as most are, without an allocation.
    Inline {
        length: u8,
        bytes: [u8; INLINE_BYTES],
    },
    /// More.
    Boxed(Box<[u8]>),
}

/// So many that an object with its reference counts fills 128 bytes.
const INLINE_BYTES: usize = 54;

/// Reads texts one by one.
#[derive(Clone)]
pub(super) struct Texts<'a> {
    packed: &'a [u8],
    body: &'a [u8],
    /// Where the place before ends.
    end: usize,
}

/// Packs texts one by one.
struct Packer<'a> {
    packed: Vec<u8>,
    source: &'a [u8],
    end: usize,
}

// === impl PackedValues ===

impl PackedValues {
    /// Packs `values`; those that are slices of `source` are found in a body that equals it.
    pub(super) fn new(values: &ObjectValues<'_>, source: &[u8]) -> Self {
        let mut packer = Packer {
            packed: Vec::with_capacity(2 * INLINE_BYTES),
            source,
            end: 0,
        };
        put_number(&mut packer.packed, values.fields.len());
        // For the number that follows, which is one byte unless fields are not in the body.
        let start = packer.packed.len() + 1;
        packer.packed.push(0);
        packer.put(&values.uid);
        for field in &values.fields {
            packer.put(field);
        }
        let mut length = Vec::with_capacity(4);
        put_number(&mut length, packer.packed.len() - start);
        packer.packed.splice(start - 1..start, length);
        packer.end = 0;
        if values.labels.is_sorted_by(|a, b| a.0 <= b.0) {
            packer.put_labels(values.labels.iter());
        } else {
            let mut labels: Vec<_> = values.labels.iter().collect();
            labels.sort_by(|a, b| a.0.cmp(&b.0));
            packer.put_labels(labels.into_iter());
        }
        Self::from_packed(packer.packed)
    }

    fn from_packed(packed: Vec<u8>) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..packed.len()) {
            None => Self::Boxed(packed.into()),
            Some(front) => {
                front.copy_from_slice(&packed);
                let length = packed.len() as u8;
                Self::Inline { length, bytes }
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Boxed(bytes) => bytes,
        }
    }

    /// Bytes that are allocated.
    pub(super) fn allocated(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Boxed(bytes) => bytes.len(),
        }
    }

    pub(super) fn uid<'a>(&'a self, body: &'a [u8]) -> &'a str {
        let (_, mut texts, _) = self.parts(body);
        texts.next().unwrap_or_default()
    }

    /// How many fields there are, and their texts with what follows them.
    pub(super) fn fields<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>) {
        let (count, mut texts, _) = self.parts(body);
        texts.skip_text();
        (count, texts)
    }

    /// Keys and values in turn.
    pub(super) fn labels<'a>(&'a self, body: &'a [u8]) -> Texts<'a> {
        self.parts(body).2
    }

    fn parts<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>, Texts<'a>) {
        let mut packed = self.bytes();
        let count = number(&mut packed);
        let before_labels = number(&mut packed);
        let (front, labels) = packed.split_at(before_labels);
        let end = 0;
        let texts = |packed| Texts { packed, body, end };
        (count, texts(front), texts(labels))
    }
}

impl PartialEq for PackedValues {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for PackedValues {}

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
            let distance = number(&mut self.packed);
            let at = match distance & 1 {
                0 => self.end + (distance >> 1),
                _ => self.end - (distance >> 1),
            };
            self.end = at + length;
            return Some(&self.body[at..self.end]);
        }
        let (text, rest) = self.packed.split_at(length);
        self.packed = rest;
        Some(text)
    }

    /// Passes over a text.
    pub(super) fn skip_text(&mut self) {
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

// === impl Packer ===

impl Packer<'_> {
    fn put_labels<'a>(&mut self, labels: impl Iterator<Item = &'a (Cow<'a, str>, Cow<'a, str>)>) {
        for (key, value) in labels {
            self.put(key);
            self.put(value);
        }
    }

    fn put(&mut self, text: &str) {
        match offset_in(text, self.source) {
            // A place takes up to that many bytes itself.
            Some(at) if text.len() > 2 => {
                put_number(&mut self.packed, text.len() << 1 | 1);
                let is_in_front = at < self.end;
                let distance = at.abs_diff(self.end) << 1 | usize::from(is_in_front);
                put_number(&mut self.packed, distance);
                self.end = at + text.len();
            }
            _ => {
                put_number(&mut self.packed, text.len() << 1);
                self.packed.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// Where `text` stands in `source`, if it is a slice of it.
fn offset_in(text: &str, source: &[u8]) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::prop_assert_eq;
    use proptest::proptest;

    use super::*;
    use crate::api::Object;

    proptest! {
        /// Whether they stand in the body, in whatever order, or not.
        #[test]
        fn packed_texts_read_back(
            source in "[a-zäöü0-9]{0,300}",
            places in vec((any::<u16>(), 0..40_usize, any::<bool>()), 1..30),
            field_count in 0..12_usize,
        ) {
            let text = |(at, length, is_inside): &(u16, usize, bool)| -> Cow<'_, str> {
                let at = usize::from(*at).min(source.len());
                match source.get(at..at + length) {
                    Some(text) if *is_inside => Cow::Borrowed(text),
                    _ => Cow::Owned("y".repeat(*length)),
                }
            };
            let mut texts = places.iter().map(text);
            let uid = texts.next().unwrap();
            let fields: Vec<_> = texts.by_ref().take(field_count).collect();
            let mut labels = Vec::new();
            while let (Some(key), Some(value)) = (texts.next(), texts.next()) {
                labels.push((key, value));
            }
            let values = ObjectValues { uid, labels, fields };
            for source in [source.as_bytes(), &[]] {
                let packed = PackedValues::new(&values, source);
                let body = source.to_vec();
                prop_assert_eq!(packed.uid(&body), &*values.uid);
                let (count, fields) = packed.fields(&body);
                let fields: Vec<_> = fields.take(count).collect();
                prop_assert_eq!(fields, values.fields.iter().map(|text| &**text).collect::<Vec<_>>());
                let mut labels: Vec<_> = values.labels.iter().collect();
                labels.sort_by(|a, b| a.0.cmp(&b.0));
                let labels = labels.iter().flat_map(|(key, value)| [&**key, &**value]);
                prop_assert_eq!(packed.labels(&body).collect::<Vec<_>>(), labels.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_object_with_its_reference_counts_fills_its_allocation() {
        assert_eq!(size_of::<Object>() + 2 * size_of::<usize>(), 128);
    }

    #[test]
    fn small_values_need_no_allocation() {
        let source = "kube-system default node-1 Running app web";
        let values = ObjectValues {
            uid: source[..11].into(),
            labels: vec![(source[35..38].into(), source[39..].into())],
            fields: vec![source[12..19].into(); 8],
        };
        assert_eq!(PackedValues::new(&values, source.as_bytes()).allocated(), 0);
        let labels = vec![("a".into(), "b".repeat(60).into())];
        let values = ObjectValues { labels, ..values };
        assert!(PackedValues::new(&values, source.as_bytes()).allocated() > 60);
    }
}
