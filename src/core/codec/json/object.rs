//! Reads objects in JSON.

use super::scanner::{Key, Scanner};
use super::text::Text;
use super::values::{visit, visit_member};
use crate::codec::Error;
use crate::codec::field_tree::{FieldTree, Values};
use crate::codec::head::{Head, Labels};

/// The state while the members of one object are read.
struct ObjectReader<'tree, 'text> {
    tree: &'tree FieldTree<String>,
    head: Head<'text>,
    body: BodyStart,
    has_metadata: bool,
}

/// Finds where an object's canonical body starts (see `api::Object`); known after the last member.
struct BodyStart {
    /// Offset of the object's opening brace.
    object_start: usize,
    /// Offset of the first key; if `kind` and `apiVersion` are first, offset of the third key.
    after_type_meta: usize,
    /// How many of `kind` and `apiVersion` are first, in this order, as in events of built-in
    /// kinds.
    in_front: usize,
    /// True if there is one of them in any other place, such as among the sorted keys of a custom
    /// resource. The items of lists of built-in kinds have neither.
    has_others: bool,
    /// Number of members added so far.
    position: usize,
}

/// Reads the object at the cursor. Returns its values and its canonical body (see `api::Object`).
pub(crate) fn object<'a>(
    scanner: &mut Scanner<'a>,
    tree: &FieldTree<String>,
    values: Values<'a>,
) -> Result<(Head<'a>, &'a [u8]), Error> {
    let mut members = scanner.object()?;
    let mut object = ObjectReader {
        tree,
        head: Head {
            values,
            ..Head::default()
        },
        body: BodyStart::new(scanner.offset() - 1),
        has_metadata: false,
    };
    while let Some(key) = scanner.next_key(&mut members)? {
        object.body.add_member(&key);
        object.member(scanner, key.text)?;
    }
    tree.fill_absent(&mut object.head.values);
    let body = scanner.since(object.body.start());
    Ok((object.head, body))
}

impl<'text> ObjectReader<'_, 'text> {
    fn member(&mut self, scanner: &mut Scanner<'text>, key: Text<'_>) -> Result<(), Error> {
        if key.is("metadata") {
            self.metadata(scanner)
        } else {
            visit_member(scanner, key, self.tree, &mut self.head.values)
        }
    }

    fn metadata(&mut self, scanner: &mut Scanner<'text>) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_metadata, true) {
            return Err(scanner.malformed("metadata only once"));
        }
        let mut fields = scanner.clone();
        metadata(scanner, &mut self.head)?;
        match self.tree.child(|name| name == "metadata") {
            Some(child) => visit(&mut fields, child, &mut self.head.values),
            None => Ok(()),
        }
    }
}

impl BodyStart {
    fn new(object_start: usize) -> Self {
        Self {
            object_start,
            after_type_meta: object_start,
            in_front: 0,
            has_others: false,
            position: 0,
        }
    }

    /// Records the next member; called once for each member, in order.
    fn add_member(&mut self, key: &Key<'_>) {
        if self.position == 0 || (self.position, self.in_front) == (2, 2) {
            self.after_type_meta = key.start;
        }
        match (self.position, self.in_front) {
            (0, _) if key.text.is("kind") => self.in_front = 1,
            (1, 1) if key.text.is("apiVersion") => self.in_front = 2,
            _ => self.has_others |= key.text.is("kind") || key.text.is("apiVersion"),
        }
        self.position += 1;
    }

    fn start(&self) -> usize {
        if self.has_others || self.in_front == 1 {
            self.object_start
        } else {
            self.after_type_meta
        }
    }
}

fn metadata<'a>(scanner: &mut Scanner<'a>, head: &mut Head<'a>) -> Result<(), Error> {
    if scanner.skip_null()? {
        return Ok(());
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        match key.text.0 {
            b"name" => head.name = scanner.text_or_empty()?,
            b"namespace" => head.namespace = scanner.text_or_empty()?,
            b"uid" => head.uid = scanner.text_or_empty()?,
            b"resourceVersion" => head.resource_version = scanner.text_or_empty()?,
            b"labels" => labels(scanner, &mut head.labels)?,
            _ => scanner.skip()?,
        }
    }
    Ok(())
}

fn labels<'a>(scanner: &mut Scanner<'a>, labels: &mut Labels<'a>) -> Result<(), Error> {
    if scanner.skip_null()? {
        return Ok(());
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let key = key.text.unescape()?;
        labels.push((key, scanner.text_or_empty()?));
    }
    Ok(())
}
