//! Collects the values of selectable fields while a JSON object is scanned.

use std::borrow::Cow;

use super::scanner::{Members, Scanner};
use super::text::Text;
use crate::codec::Error;
use crate::codec::field_tree::{FieldTree, Values};

/// Reads the value of the member `key` if `tree` has a child with this key; otherwise skips it.
pub(super) fn visit_member<'a>(
    scanner: &mut Scanner<'a>,
    key: Text<'_>,
    tree: &FieldTree<String>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    match tree.child(|name| key.is(name)) {
        Some(child) => visit(scanner, child, values),
        None => scanner.skip(),
    }
}

pub(super) fn visit<'a>(
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
            for leaf in &tree.leaves {
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
            None => scanner.skip()?,
        }
        index += 1;
    }
    Ok(())
}

/// Returns the text that field selectors compare for a JSON value, or `None` for
/// null, objects and arrays.
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
