//! Metadata on its own, as a PartialObjectMetadata carries it.

use crate::codec::Error;
use crate::codec::scanner::Members;
use crate::codec::scanner::Scanner;

/// The bytes of an object's metadata.
pub(super) fn metadata(body: &[u8]) -> Result<&[u8], Error> {
    let mut scanner = Scanner::new(body);
    let mut members = match body.first() {
        Some(b'{') => scanner.object()?,
        _ => Members::default(),
    };
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("metadata") {
            return Ok(&body[value]);
        }
    }
    Err(Error::Missing("metadata"))
}

/// The fields of ObjectMeta in the order that the API declares them.
const OBJECT_META: [&str; 15] = [
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
const OWNER_REFERENCE: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
const MANAGED_FIELDS: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// Metadata as it is printed on its own, from one with sorted keys.
pub(super) fn in_declared_order(metadata: &str) -> Result<String, Error> {
    ordered(metadata, &OBJECT_META, |name, value| match name {
        "ownerReferences" => each_ordered(value, &OWNER_REFERENCE),
        "managedFields" => each_ordered(value, &MANAGED_FIELDS),
        _ => Ok(value.to_owned()),
    })
}

fn each_ordered(list: &str, order: &[&str]) -> Result<String, Error> {
    let mut scanner = Scanner::new(list.as_bytes());
    let mut items = scanner.array()?;
    let mut printed = Vec::new();
    while scanner.next_element(&mut items)? {
        let item = &list[scanner.skip()?];
        printed.push(ordered(item, order, |_, value| Ok(value.to_owned()))?);
    }
    Ok(format!("[{}]", printed.join(",")))
}

/// The members of a JSON object that `order` names, in that order.
fn ordered(
    object: &str,
    order: &[&str],
    print: impl Fn(&str, &str) -> Result<String, Error>,
) -> Result<String, Error> {
    let mut found: Vec<Option<String>> = vec![None; order.len()];
    let mut scanner = Scanner::new(object.as_bytes());
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = &object[scanner.skip()?];
        if let Some(position) = order.iter().position(|name| key.text.is(name)) {
            let name = order[position];
            found[position] = Some(format!("\"{name}\":{}", print(name, value)?));
        }
    }
    let members: Vec<_> = found.into_iter().flatten().collect();
    Ok(format!("{{{}}}", members.join(",")))
}
