//! Replaces the resource version in JSON.

use std::ops::Range;

use crate::api::ResourceVersion;
use crate::codec::Error;
use crate::codec::json::{Members, Scanner};

/// Returns the range of the value of `metadata` in a canonical JSON body (see `api::Object`).
pub(crate) fn metadata(body: &[u8]) -> Result<Range<usize>, Error> {
    let mut scanner = Scanner::new(body);
    let mut members = match body.first() {
        Some(b'{') => scanner.object()?,
        _ => Members::default(),
    };
    if !scanner.find(&mut members, "metadata")? {
        return Err(Error::Missing("metadata"));
    }
    scanner.range()
}

/// Copies a canonical JSON body (see `api::Object`) with its resource version replaced by `rv`.
pub(crate) fn json_with_resource_version(
    body: &[u8],
    rv: ResourceVersion,
) -> Result<Vec<u8>, Error> {
    let place = metadata(body)?;
    let changed = at_version(&body[place.clone()], rv)?;
    Ok([&body[..place.start], &changed, &body[place.end..]].concat())
}

/// Copies JSON `metadata` with its resource version replaced by `rv`.
pub(super) fn at_version(metadata: &[u8], rv: ResourceVersion) -> Result<Vec<u8>, Error> {
    let mut scanner = Scanner::new(metadata);
    let mut members = scanner.object()?;
    if !scanner.find(&mut members, "resourceVersion")? {
        return Err(Error::Missing("metadata.resourceVersion"));
    }
    let value = scanner.range()?;
    let quoted = format!("\"{rv}\"");
    let (before, after) = (&metadata[..value.start], &metadata[value.end..]);
    Ok([before, quoted.as_bytes(), after].concat())
}
