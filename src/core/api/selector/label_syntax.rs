//! The syntax of label keys and label values.

const NAME_LIMIT: usize = 63;
const PREFIX_LIMIT: usize = 253;

/// Returns true if `key` is a label key: a name, optionally preceded by a DNS subdomain and `/`.
pub fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => {
            let is_prefix = prefix.len() <= PREFIX_LIMIT && prefix.split('.').all(is_dns_label);
            is_prefix && is_name(name)
        }
    }
}

/// Returns true if `value` is a label value: empty, or a name.
pub(super) fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(text: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= NAME_LIMIT
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Returns true if `text` is a label of a DNS name in lower case, of any length.
pub fn is_dns_label(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-')
}
