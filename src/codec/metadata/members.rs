//! What ObjectMeta consists of, and where that stands in JSON.

use crate::codec::Error;
use crate::codec::json::Scanner;

/// The fields of ObjectMeta in the order that the API declares them, which is that of JSON printed
/// from it.
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

/// The values of the members that `names` names, in its order; none of them for null.
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

/// The elements of a JSON array; none for null.
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
