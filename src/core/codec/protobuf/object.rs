//! Reads objects in protobuf.

use std::borrow::Cow;

use super::fields::{Field, Fields, RESOURCE_VERSION, Value, texts_of};
use crate::api::FieldValue;
use crate::codec::Error;
use crate::codec::field_tree::{FieldTree, Leaf, Values};
use crate::codec::head::Head;

/// Reads the metadata and selectable fields of an object message without an envelope.
pub(crate) fn object<'a>(
    message: &'a [u8],
    tree: &FieldTree<u32>,
    mut values: Values<'a>,
) -> Result<Head<'a>, Error> {
    let mut head = Head::default();
    for field in Fields::new(message) {
        let field = field?;
        if field.number == 1 {
            metadata(field.bytes()?, &mut head)?;
        }
        visit(&field, tree, &mut values)?;
    }
    tree.fill_absent(&mut values);
    head.values = values;
    Ok(head)
}

fn metadata<'a>(message: &'a [u8], head: &mut Head<'a>) -> Result<(), Error> {
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => head.name = field.text()?.into(),
            3 => head.namespace = field.text()?.into(),
            5 => head.uid = field.text()?.into(),
            RESOURCE_VERSION => head.resource_version = field.text()?.into(),
            11 => {
                let [key, value] = texts_of(field.bytes()?, [1, 2])?;
                head.labels.push((key.into(), value.into()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the selectable values in `field`. `tree` is the node for the message that contains
/// `field`. For a repeated field, only its first element is used.
fn visit<'a>(
    field: &Field<'a>,
    tree: &FieldTree<u32>,
    values: &mut Values<'a>,
) -> Result<(), Error> {
    let Some(child) = tree.child(|number| *number == field.number) else {
        return Ok(());
    };
    for leaf in &child.leaves {
        if values[leaf.position].is_none() {
            values[leaf.position] = Some(scalar(field, *leaf)?);
        }
    }
    if child.has_children() {
        for inner in Fields::new(field.bytes()?) {
            visit(&inner?, child, values)?;
        }
        child.fill_absent(values);
    }
    Ok(())
}

fn scalar<'a>(field: &Field<'a>, leaf: Leaf) -> Result<Cow<'a, str>, Error> {
    match (leaf.value, field.value) {
        (FieldValue::Boolean, Value::Varint(0)) => Ok("false".into()),
        (FieldValue::Boolean, Value::Varint(_)) => Ok("true".into()),
        (_, Value::Varint(number)) => Ok(number.cast_signed().to_string().into()),
        _ => Ok(field.text()?.into()),
    }
}
