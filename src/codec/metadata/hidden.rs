//! Annotations that stand in whole objects only.

use crate::codec::Error;
use crate::codec::json::Scanner;
use crate::codec::protobuf::ANNOTATIONS;
use crate::codec::protobuf::Field;
use crate::codec::protobuf::map_entry;

/// The annotation that the API server puts into whole objects of a kind, made of what it keeps
/// elsewhere: metadata alone goes without it.
pub(crate) fn hidden_annotation(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("apps/v1", "DaemonSet") => Some("deprecated.daemonset.template.generation"),
        _ => None,
    }
}

/// True for the field of ObjectMeta that holds that annotation.
pub(super) fn is_hidden(field: &Field<'_>, hidden: &str) -> bool {
    let entry = || field.bytes().and_then(map_entry);
    field.number == ANNOTATIONS && entry().is_ok_and(|(key, _)| key == hidden)
}

/// JSON metadata without an annotation, and without annotations if there is no other.
pub(super) fn without_annotation(metadata: &[u8], hidden: &str) -> Result<Vec<u8>, Error> {
    let mut output = Vec::with_capacity(metadata.len());
    let mut scanner = Scanner::new(metadata);
    let mut fields = scanner.object()?;
    let mut open = b'{';
    while let Some(key) = scanner.next_key(&mut fields)? {
        if !key.text.is("annotations") || scanner.peek() != Some(b'{') {
            let value = scanner.skip()?;
            output.push(std::mem::replace(&mut open, b','));
            output.extend_from_slice(&metadata[key.start..value.end]);
            continue;
        }
        let others = other_entries(&mut scanner, metadata, hidden)?;
        if !others.is_empty() {
            output.push(std::mem::replace(&mut open, b','));
            output.extend_from_slice(b"\"annotations\":{");
            output.extend_from_slice(&others.join(&b','));
            output.push(b'}');
        }
    }
    output.push(b'}');
    Ok(output)
}

/// The entries but one of the map at the cursor.
fn other_entries<'a>(
    scanner: &mut Scanner<'_>,
    metadata: &'a [u8],
    hidden: &str,
) -> Result<Vec<&'a [u8]>, Error> {
    let mut others = Vec::new();
    let mut entries = scanner.object()?;
    while let Some(entry) = scanner.next_key(&mut entries)? {
        let value = scanner.skip()?;
        if !entry.text.is(hidden) {
            others.push(&metadata[entry.start..value.end]);
        }
    }
    Ok(others)
}
