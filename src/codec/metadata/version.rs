//! JSON with another resource version.

use std::ops::Range;

use crate::api::ResourceVersion;
use crate::codec::Error;
use crate::codec::json::Members;
use crate::codec::json::Scanner;

/// Where the metadata's value stands in a canonical JSON body.
pub(crate) fn metadata(body: &[u8]) -> Result<Range<usize>, Error> {
    let mut scanner = Scanner::new(body);
    let mut members = match body.first() {
        Some(b'{') => scanner.object()?,
        _ => Members::default(),
    };
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("metadata") {
            return Ok(value);
        }
    }
    Err(Error::Missing("metadata"))
}

/// The canonical JSON body with another resource version.
pub(crate) fn json_with_resource_version(
    body: &[u8],
    rv: ResourceVersion,
) -> Result<Vec<u8>, Error> {
    let place = metadata(body)?;
    let changed = at_version(&body[place.clone()], rv)?;
    Ok([&body[..place.start], &changed, &body[place.end..]].concat())
}

/// Metadata with another resource version.
pub(super) fn at_version(metadata: &[u8], rv: ResourceVersion) -> Result<Vec<u8>, Error> {
    let mut scanner = Scanner::new(metadata);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("resourceVersion") {
            let quoted = format!("\"{rv}\"");
            let (before, behind) = (&metadata[..value.start], &metadata[value.end..]);
            return Ok([before, quoted.as_bytes(), behind].concat());
        }
    }
    Err(Error::Missing("metadata.resourceVersion"))
}
