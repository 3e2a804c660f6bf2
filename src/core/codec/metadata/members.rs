//! The field names of ObjectMeta and of the messages in it, and a lookup of JSON members by name.

use crate::codec::Error;
use crate::codec::json::Scanner;

/// The fields of ObjectMeta in the order of their declarations in the API. JSON that is encoded
/// from the Go type has this order.
pub const OBJECT_META: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
pub(super) const OWNER_REFERENCE: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
pub(super) const MANAGED_FIELDS: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// Returns the values of the members called `names`, in that order, or `None` if absent
/// or `object` is null.
pub(super) fn members<'a, const N: usize>(
    object: &'a [u8],
    names: &[&str; N],
) -> Result<[Option<&'a [u8]>; N], Error> {
    let mut found = [None; N];
    let mut scanner = Scanner::new(object);
    if scanner.peek() == Some(b'n') {
        return Ok(found);
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.value()?;
        if let Some(position) = names.iter().position(|name| key.text.is(name)) {
            found[position] = Some(value);
        }
    }
    Ok(found)
}

/// Returns the elements of a JSON array, or no elements if `array` is null.
pub(super) fn elements(array: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut found = Vec::new();
    let mut scanner = Scanner::new(array);
    if scanner.peek() == Some(b'n') {
        return Ok(found);
    }
    let mut elements = scanner.array()?;
    while scanner.next_element(&mut elements)? {
        found.push(scanner.value()?);
    }
    Ok(found)
}
