//! The names in certificates as text, for messages.

/// The longest text of a name, in characters. Any server may choose the names in its certificate.
const LONGEST: usize = 200;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// The attributes that are shown, by their object identifiers in DER.
const ATTRIBUTES: [(&[u8], &str); 3] = [
    (&[0x55, 0x04, 0x03], "CN"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
];

/// Returns the common name and organization in `name`, the content of a `Name` in DER, such as
/// `"CN=kubernetes"`, in quotes.
pub(super) fn text(name: &[u8]) -> String {
    let mut shown = Vec::new();
    for set in elements(name, SET) {
        for pair in elements(set, SEQUENCE) {
            let mut rest = pair;
            let (Some((OBJECT_IDENTIFIER, kind)), Some((_, value))) =
                (next(&mut rest), next(&mut rest))
            else {
                continue;
            };
            if let Some((_, label)) = ATTRIBUTES.iter().find(|(known, _)| *known == kind) {
                shown.push(format!("{label}={}", String::from_utf8_lossy(value)));
            }
        }
    }
    let text: String = shown.join(", ").chars().take(LONGEST).collect();
    format!("{text:?}")
}

/// Returns the contents of the elements with `tag` that `bytes` consist of.
fn elements(mut bytes: &[u8], tag: u8) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || next(&mut bytes))
        .filter(move |(found, _)| *found == tag)
        .map(|(_, content)| content)
}

/// Takes the next element from `bytes`: its tag and its content. `None` if there is none, or if it
/// is malformed.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => {
            let (&length, rest) = rest.split_first()?;
            (usize::from(length), rest)
        }
        0x82 => {
            let (&length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(length)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_and_garbage_is_not() {
        let cn = [&[0x31, 13, 0x30, 11, 6, 3, 0x55, 4, 3, 12, 4][..], b"kube"].concat();
        let o = [&[0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 10, 19, 2][..], b"a\n"].concat();
        let other = [&[0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 6, 19, 2][..], b"DE"].concat();
        let all = [&cn[..], &other, &o].concat();
        assert_eq!(text(&all), r#""CN=kube, O=a\n""#);
        for end in 0..all.len() {
            let shown = text(&all[..end]);
            assert!(shown == "\"\"" || shown == r#""CN=kube""#, "{shown}");
        }
        let long = vec![b'x'; 1_000];
        let pair = [&[6, 3, 0x55, 4, 3, 12, 0x82, 3, 232][..], &long].concat();
        let length = |content: &[u8]| u16::try_from(content.len()).expect("short").to_be_bytes();
        let pair = [&[0x30, 0x82][..], &length(&pair), &pair].concat();
        let set = [&[0x31, 0x82][..], &length(&pair), &pair].concat();
        assert_eq!(text(&set).len(), LONGEST + 2);
    }
}
