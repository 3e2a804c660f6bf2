//! The values that selectors compare, packed into few bytes: mostly positions in the body.

use std::borrow::Cow;

/// The values parsed from an object, besides its key and resource version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectValues<'a> {
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.labels` as pairs of key and value, in any order.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The values of the kind's selectable fields, in the order of `SelectableFields::fields`.
    pub fields: Vec<Cow<'a, str>>,
}

/// [`ObjectValues`] as one sequence of bytes.
///
/// It begins with two numbers: the count of fields, and the packed length of the uid and fields.
/// Then come the texts: the uid, the fields, and the labels' keys and values, sorted by key. Each
/// text begins with a number: twice its length, plus one if the text is in the body. Next is the
/// text itself or, if it is in the body, its distance from the end of the last text that was in the
/// body: twice the distance, plus one if it is backwards.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum PackedValues {
    /// At most [`INLINE_BYTES`], stored without an allocation; most objects' values are this short.
    /// The bytes after `length` are 0.
    Inline {
        length: u8,
        bytes: [u8; INLINE_BYTES],
    },
    /// More than [`INLINE_BYTES`], in an allocation.
    Boxed(Box<[u8]>),
}

/// The longest packed values without an allocation, in bytes. Chosen so that an `Arc<Object>`'s
/// allocation has 128 bytes, as `an_object_with_its_reference_counts_fills_its_allocation` checks.
const INLINE_BYTES: usize = 54;

/// An iterator over texts in packed values.
#[derive(Clone)]
pub(super) struct Texts<'a> {
    packed: &'a [u8],
    body: &'a [u8],
    /// The end, in `body`, of the last text that was in the body; 0 before the first one.
    end: usize,
}

/// Appends texts to packed values.
struct Packer<'a> {
    packed: Vec<u8>,
    source: &'a [u8],
    end: usize,
}

// === impl PackedValues ===

impl PackedValues {
    /// Packs `values`. Those that are slices of `source` are stored as positions, so they can be
    /// read only together with a body that equals `source`.
    pub(super) fn new(values: &ObjectValues<'_>, source: &[u8]) -> Self {
        let mut packer = Packer {
            packed: Vec::with_capacity(2 * INLINE_BYTES),
            source,
            end: 0,
        };
        put_varint(&mut packer.packed, values.fields.len());
        // Reserves one byte for the length of the uid and fields, which is enough for most objects.
        let start = packer.packed.len() + 1;
        packer.packed.push(0);
        packer.put(&values.uid);
        for field in &values.fields {
            packer.put(field);
        }
        let length = packer.packed.len() - start;
        if length < 0x80 {
            packer.packed[start - 1] = length as u8;
        } else {
            let mut longer = Vec::with_capacity(4);
            put_varint(&mut longer, length);
            packer.packed.splice(start - 1..start, longer);
        }
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

    /// Returns the size of the allocation in bytes, or 0 if the values are inline.
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

    /// Returns the count of fields, and the texts that begin with them.
    pub(super) fn fields<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>) {
        let (count, mut texts, _) = self.parts(body);
        texts.skip_text();
        (count, texts)
    }

    /// Returns the labels, sorted by key: each key is followed by its value.
    pub(super) fn labels<'a>(&'a self, body: &'a [u8]) -> Texts<'a> {
        self.parts(body).2
    }

    fn parts<'a>(&'a self, body: &'a [u8]) -> (usize, Texts<'a>, Texts<'a>) {
        let mut packed = self.bytes();
        let count = read_varint(&mut packed);
        let before_labels = read_varint(&mut packed);
        let (front, labels) = packed.split_at(before_labels);
        let end = 0;
        let texts = |packed| Texts { packed, body, end };
        (count, texts(front), texts(labels))
    }
}

// === impl Texts ===

impl<'a> Texts<'a> {
    /// Returns the next text as bytes, without checking that they are UTF-8.
    pub(super) fn next_bytes(&mut self) -> Option<&'a [u8]> {
        if self.packed.is_empty() {
            return None;
        }
        let head = read_varint(&mut self.packed);
        let length = head >> 1;
        if head & 1 == 1 {
            let distance = read_varint(&mut self.packed);
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

    pub(super) fn skip_text(&mut self) {
        self.next_bytes();
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = str::from_utf8(self.next_bytes()?);
        Some(text.expect("packed values are UTF-8 and the body never changes"))
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
            // Shorter texts are stored as they are, because a position takes about two bytes.
            Some(at) if text.len() > 2 => {
                put_varint(&mut self.packed, text.len() << 1 | 1);
                let is_in_front = at < self.end;
                let distance = at.abs_diff(self.end) << 1 | usize::from(is_in_front);
                put_varint(&mut self.packed, distance);
                self.end = at + text.len();
            }
            _ => {
                put_varint(&mut self.packed, text.len() << 1);
                self.packed.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// Returns the offset of `text` in `source` if it is a slice of `source`, judged by its address.
fn offset_in(text: &str, source: &[u8]) -> Option<usize> {
    let at = text.as_ptr().addr().checked_sub(source.as_ptr().addr())?;
    let end = at.checked_add(text.len())?;
    (source.get(at..end)? == text.as_bytes()).then_some(at)
}

fn put_varint(packed: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn read_varint(packed: &mut &[u8]) -> usize {
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
    use proptest::{prop_assert_eq, proptest};

    use super::*;
    use crate::api::{Object, ObjectKey, ResourceVersion};

    proptest! {
        /// Values read back unchanged, whether or not they are slices of the body, in any order.
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
    fn fields_are_compared_up_to_the_count() {
        let object = |fields: &[&'static str], label: &'static str| {
            let values = ObjectValues {
                uid: "u".into(),
                labels: vec![("app".into(), label.into())],
                fields: fields.iter().map(|field| (*field).into()).collect(),
            };
            let body = bytes::Bytes::from_static(b"node-1 Running");
            Object::new(ObjectKey::new(None, "a"), ResourceVersion(1), &values, body)
        };
        let stored = object(&["node-1", "Running"], "x");
        let rows: [(&[&'static str], &'static str, [bool; 3]); 5] = [
            (&["node-1", "Running"], "y", [true, true, true]),
            (&["node-1", "Failed"], "x", [true, true, false]),
            (&["node-2", "Running"], "x", [true, false, false]),
            // An absent field is an empty text.
            (&["node-1"], "x", [true, true, false]),
            (&[], "x", [true, false, false]),
        ];
        for (fields, label, expected) in rows {
            let other = object(fields, label);
            let found = [0, 1, 2].map(|count| stored.has_same_fields(&other, count));
            assert_eq!(found, expected, "{fields:?}");
            let found = [0, 1, 2].map(|count| other.has_same_fields(&stored, count));
            assert_eq!(found, expected, "{fields:?}");
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
