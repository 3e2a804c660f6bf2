//! Finds the managed fields of an object in JSON.

use std::ops::Range;

use super::scanner::{Members, Scanner};
use crate::codec::Error;

/// Returns the part of the text `object` that is its `metadata.managedFields`, with one of the
/// commas beside it, or `None` if the object has none.
///
/// # Errors
///
/// If the text is not an object.
pub(crate) fn managed_fields(object: &[u8]) -> Result<Option<Range<usize>>, Error> {
    let mut scanner = Scanner::new(object);
    let mut members = scanner.object()?;
    if scanner.find(&mut members, "metadata")? && scanner.peek() == Some(b'{') {
        return in_metadata(&mut scanner);
    }
    Ok(None)
}

fn in_metadata(scanner: &mut Scanner<'_>) -> Result<Option<Range<usize>>, Error> {
    let mut members: Members = scanner.object()?;
    let mut end_before = None;
    while let Some(key) = scanner.next_key(&mut members)? {
        scanner.skip()?;
        let end = scanner.offset();
        if !key.text.is("managedFields") {
            end_before = Some(end);
            continue;
        }
        return Ok(Some(match end_before {
            Some(end_before) => end_before..end,
            None => {
                let next = scanner.next_key(&mut members)?;
                key.start..next.map_or(end, |next| next.start)
            }
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_goes_with_one_comma() {
        let value = r#"[{"manager":"a","fieldsV1":{"f:x":{}}}]"#;
        for (object, expected) in [
            (
                r#"{"metadata":{"name":"a",M},"spec":{}}"#,
                r#"{"metadata":{"name":"a"},"spec":{}}"#,
            ),
            (
                r#"{"metadata":{M,"name":"a"}}"#,
                r#"{"metadata":{"name":"a"}}"#,
            ),
            (
                r#"{"metadata":{"a":1, M , "b":2}}"#,
                r#"{"metadata":{"a":1 , "b":2}}"#,
            ),
            (r#"{"metadata":{M}}"#, r#"{"metadata":{}}"#),
            (
                r#"{"kind":"A","metadata":{"a":{M}}}"#,
                r#"{"kind":"A","metadata":{"a":{M}}}"#,
            ),
            (
                r#"{"spec":{"metadata":{M}}}"#,
                r#"{"spec":{"metadata":{M}}}"#,
            ),
            (r#"{"metadata":null}"#, r#"{"metadata":null}"#),
            ("{}", "{}"),
        ] {
            let field = format!("\"managedFields\":{value}");
            let (object, expected) = (object.replace('M', &field), expected.replace('M', &field));
            let range = managed_fields(object.as_bytes()).expect("an object");
            let found = match range {
                Some(range) => [&object[..range.start], &object[range.end..]].concat(),
                None => object.clone(),
            };
            assert_eq!(found, expected, "{object}");
        }
        assert!(managed_fields(b"[]").is_err());
    }
}
