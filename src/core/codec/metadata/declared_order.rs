//! Reorders the sorted metadata keys of custom resources into the API's order of declaration.

use super::members::{MANAGED_FIELDS, OBJECT_META, OWNER_REFERENCE, elements, members};
use crate::codec::Error;

/// Reorders JSON metadata with sorted keys into the order that a PartialObjectMetadata has.
pub(crate) fn in_declared_order(metadata: &[u8]) -> Result<Vec<u8>, Error> {
    let mut printed = Vec::with_capacity(metadata.len());
    put_ordered(
        &mut printed,
        metadata,
        &OBJECT_META,
        |printed, name, value| match name {
            "ownerReferences" => put_each_ordered(printed, value, &OWNER_REFERENCE),
            "managedFields" => put_each_ordered(printed, value, &MANAGED_FIELDS),
            _ => {
                printed.extend_from_slice(value);
                Ok(())
            }
        },
    )?;
    Ok(printed)
}

fn put_each_ordered<const N: usize>(
    printed: &mut Vec<u8>,
    list: &[u8],
    order: &[&str; N],
) -> Result<(), Error> {
    let mut open = b'[';
    for item in elements(list)? {
        printed.push(std::mem::replace(&mut open, b','));
        put_ordered(printed, item, order, |printed, _, value| {
            printed.extend_from_slice(value);
            Ok(())
        })?;
    }
    if open == b'[' {
        printed.push(open);
    }
    printed.push(b']');
    Ok(())
}

/// Appends the members of `object` that `order` names, in that order; `put` appends each value.
fn put_ordered<const N: usize>(
    printed: &mut Vec<u8>,
    object: &[u8],
    order: &[&str; N],
    put: impl Fn(&mut Vec<u8>, &str, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let found = members(object, order)?;
    let mut open = b'{';
    for (name, value) in order.iter().zip(found) {
        let Some(value) = value else { continue };
        printed.push(std::mem::replace(&mut open, b','));
        printed.push(b'"');
        printed.extend_from_slice(name.as_bytes());
        printed.extend_from_slice(b"\":");
        put(printed, name, value)?;
    }
    if open == b'{' {
        printed.push(open);
    }
    printed.push(b'}');
    Ok(())
}
