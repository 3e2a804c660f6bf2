//! Annotations that whole objects have and PartialObjectMetadata lacks.

use crate::codec::Error;
use crate::codec::json::Scanner;
use crate::codec::protobuf::{ANNOTATIONS, Field, texts_of};

/// Returns the annotation, if any, that the API server adds to whole objects of this kind. The
/// value is from an internal field, so a PartialObjectMetadata does not have the annotation.
pub(crate) fn hidden_annotation(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("apps/v1", "DaemonSet") => Some("deprecated.daemonset.template.generation"),
        _ => None,
    }
}

/// Returns true if `field` of ObjectMeta is the map entry of the annotation `hidden`.
pub(super) fn is_hidden(field: &Field<'_>, hidden: &str) -> bool {
    let entry = || field.bytes().and_then(|entry| texts_of(entry, [1, 2]));
    field.number == ANNOTATIONS && entry().is_ok_and(|[key, _]| key == hidden)
}

/// Copies JSON metadata without the annotation `hidden`, and without an empty `annotations`.
pub(super) fn without_annotation(metadata: &[u8], hidden: &str) -> Result<Vec<u8>, Error> {
    let mut output = Vec::with_capacity(metadata.len());
    let mut scanner = Scanner::new(metadata);
    let mut fields = scanner.object()?;
    let mut open = b'{';
    while let Some(key) = scanner.next_key(&mut fields)? {
        if !key.text.is("annotations") || scanner.peek() != Some(b'{') {
            let value = scanner.range()?;
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

/// Returns the encoded entries of the map at the scanner's position, except the
/// entry with key `hidden`.
fn other_entries<'a>(
    scanner: &mut Scanner<'_>,
    metadata: &'a [u8],
    hidden: &str,
) -> Result<Vec<&'a [u8]>, Error> {
    let mut others = Vec::new();
    let mut entries = scanner.object()?;
    while let Some(entry) = scanner.next_key(&mut entries)? {
        let value = scanner.range()?;
        if !entry.text.is(hidden) {
            others.push(&metadata[entry.start..value.end]);
        }
    }
    Ok(others)
}
