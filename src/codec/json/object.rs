//! Objects, lists and watch events in JSON.

use std::borrow::Cow;

use super::scanner::Members;
use super::scanner::Scanner;
use super::scanner::Text;
use super::scanner::compact;
use crate::codec::Error;
use crate::codec::field_tree::FieldTree;
use crate::codec::field_tree::Values;

/// What is read from an object in either format.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
    pub(crate) labels: Labels<'a>,
    pub(crate) values: Values<'a>,
}

/// Keys and values.
pub(crate) type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Where `kind` and `apiVersion` stand in an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeMetaPlace {
    /// Nowhere, as in items of built-in lists.
    Absent,
    /// `kind` is first; what comes second is not known yet.
    KindFirst,
    /// `kind`, then `apiVersion`, in front of all else.
    Front,
    /// Anywhere else.
    Inside,
}

/// What a list says beside its items.
#[derive(Default)]
pub(crate) struct ListHead {
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
}

/// A watch event's two members.
pub(crate) struct Event<'a, T> {
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) object: T,
}

/// Reads the object at the cursor and gives its canonical body.
pub(crate) fn object<'a>(
    scanner: &mut Scanner<'a>,
    tree: &FieldTree<String>,
    mut values: Values<'a>,
) -> Result<(Head<'a>, &'a [u8]), Error> {
    let mut head = Head::default();
    let mut members = scanner.object()?;
    let whole = scanner.offset() - 1;
    let mut behind_type_meta = None;
    let mut place = TypeMetaPlace::Absent;
    let mut position = 0;
    let mut has_metadata = false;
    while let Some(key) = scanner.next_key(&mut members)? {
        let is_front = place == TypeMetaPlace::Front && position == 2;
        if position == 0 || is_front {
            behind_type_meta = Some(key.start);
        }
        place = place.after(key.text, position);
        position += 1;
        if key.text.is("metadata") {
            if std::mem::replace(&mut has_metadata, true) {
                return Err(scanner.malformed("metadata only once"));
            }
            let mut fields = scanner.clone();
            metadata(scanner, &mut head)?;
            if let Some(child) = tree.child(|name| name == "metadata") {
                visit(&mut fields, child, &mut values)?;
            }
        } else {
            visit_member(scanner, key.text, tree, &mut values)?;
        }
    }
    let start = match place {
        TypeMetaPlace::Absent | TypeMetaPlace::Front => behind_type_meta.unwrap_or(whole),
        TypeMetaPlace::KindFirst | TypeMetaPlace::Inside => whole,
    };
    tree.settle(&mut values);
    head.values = values;
    Ok((head, scanner.since(start)))
}

impl TypeMetaPlace {
    fn after(self, key: Text<'_>, position: usize) -> Self {
        let is_kind = key.is("kind");
        match (self, position) {
            _ if !is_kind && !key.is("apiVersion") => self.settled(position),
            (Self::Absent, 0) if is_kind => Self::KindFirst,
            (Self::KindFirst, 1) if !is_kind => Self::Front,
            _ => Self::Inside,
        }
    }

    fn settled(self, position: usize) -> Self {
        match self {
            Self::KindFirst if position == 1 => Self::Inside,
            other => other,
        }
    }
}

fn metadata<'a>(scanner: &mut Scanner<'a>, head: &mut Head<'a>) -> Result<(), Error> {
    if scanner.peek() == Some(b'n') {
        return scanner.skip().map(|_| ());
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"name" => head.name = text_or_empty(scanner)?,
            b"namespace" => head.namespace = text_or_empty(scanner)?,
            b"uid" => head.uid = text_or_empty(scanner)?,
            b"resourceVersion" => head.resource_version = text_or_empty(scanner)?,
            b"labels" => labels(scanner, &mut head.labels)?,
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(())
}

fn text_or_empty<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, str>, Error> {
    let text = scanner.optional_string()?;
    text.map_or(Ok(Cow::Borrowed("")), Text::unescape)
}

fn labels<'a>(scanner: &mut Scanner<'a>, labels: &mut Labels<'a>) -> Result<(), Error> {
    if scanner.peek() == Some(b'n') {
        return scanner.skip().map(|_| ());
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let key = key.text.unescape()?;
        labels.push((key, text_or_empty(scanner)?));
    }
    Ok(())
}

/// Reads the member's value when `tree` knows its key, else passes over it.
fn visit_member<'a>(
    scanner: &mut Scanner<'a>,
    key: Text<'_>,
    tree: &FieldTree<String>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    match tree.child(|name| key.is(name)) {
        Some(child) => visit(scanner, child, values),
        None => scanner.skip().map(|_| ()),
    }
}

fn visit<'a>(
    scanner: &mut Scanner<'a>,
    tree: &FieldTree<String>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    match scanner.peek() {
        Some(b'{') if tree.has_children() => {
            let mut members = scanner.object()?;
            while let Some(key) = scanner.next_key(&mut members)? {
                visit_member(scanner, key.text, tree, values)?;
            }
            Ok(())
        }
        Some(b'[') if tree.has_children() => visit_array(scanner, tree, values),
        _ => {
            let text = scanner.value()?;
            for leaf in tree.leaves() {
                values[leaf.position] = scalar(text)?;
            }
            Ok(())
        }
    }
}

fn visit_array<'a>(
    scanner: &mut Scanner<'a>,
    tree: &FieldTree<String>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    let mut elements: Members = scanner.array()?;
    let mut index = 0_usize;
    while scanner.next_element(&mut elements)? {
        match tree.child(|name| name.parse() == Ok(index)) {
            Some(child) => visit(scanner, child, values)?,
            None => {
                scanner.skip()?;
            }
        }
        index += 1;
    }
    Ok(())
}

/// A scalar as selectors compare it; `None` for null and for what is no scalar.
fn scalar(text: &[u8]) -> Result<Option<Cow<'_, str>>, Error> {
    match text {
        [b'"', inside @ .., b'"'] => Ok(Some(Text(inside).unescape()?)),
        [b'{' | b'[' | b'n', ..] => Ok(None),
        literal => {
            let literal = std::str::from_utf8(literal).map_err(|_| Error::Utf8)?;
            Ok(Some(literal.into()))
        }
    }
}

/// Reads a list; `item` reads one item.
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
            _ => {
                scanner.skip()?;
            }
        }
    }
    match has_items {
        true => Ok(head),
        false => Err(Error::Missing("items")),
    }
}

/// Where the items of the list begin whose start is `text`, behind their bracket.
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
    if scanner.peek() == Some(b'n') {
        return scanner.skip().map(|_| ());
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
            b"resourceVersion" => head.resource_version = text_or_empty(scanner)?.into_owned(),
            b"continue" => {
                let token = text_or_empty(scanner)?.into_owned();
                head.continue_token = (!token.is_empty()).then_some(token);
            }
            _ => {
                scanner.skip()?;
            }
        }
    }
    Ok(())
}

/// Reads a watch event; `read` reads its object, told the event's type.
pub(crate) fn event<'a, T>(
    text: &'a [u8],
    read: impl Fn(&mut Scanner<'a>, &str) -> Result<T, Error>,
) -> Result<Event<'a, T>, Error> {
    let mut event_type = None;
    let mut object = None;
    let mut waiting = None;
    let mut scanner = Scanner::new(text);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match (key.text.0, &event_type) {
            (b"type", _) => event_type = Some(scanner.string()?.unescape()?),
            (b"object", Some(event_type)) => object = Some(read(&mut scanner, event_type)?),
            (b"object", None) => {
                waiting = Some(scanner.clone());
                scanner.skip()?;
            }
            _ => {
                scanner.skip()?;
            }
        }
    }
    let event_type = event_type.ok_or(Error::Missing("type"))?;
    if let Some(mut scanner) = waiting {
        object = Some(read(&mut scanner, &event_type)?);
    }
    Ok(Event {
        event_type,
        object: object.ok_or(Error::Missing("object"))?,
    })
}

/// Reads a watch event whose object is taken as it stands.
pub(crate) fn raw_event(text: &[u8]) -> Result<Event<'_, &[u8]>, Error> {
    event(text, |scanner, _| scanner.value())
}

/// The text without line breaks between tokens, which would break a watch frame in two.
pub(crate) fn on_one_line(text: &[u8]) -> Cow<'_, [u8]> {
    match memchr::memchr(b'\n', text) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(compact(text)),
    }
}

/// `text` as a JSON string with its quotes, escaped as Go does it.
pub(crate) fn quoted(text: &str) -> String {
    escape_as_go(&serde_json::Value::from(text).to_string())
}

/// Escapes in JSON what Go escapes beyond the standard.
pub(crate) fn escape_as_go(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}
