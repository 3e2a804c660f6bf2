//! What label keys and values may look like, and the API server's words for what is wrong.

use super::go_text::quote;

const NAME_LIMIT: usize = 63;
const PREFIX_LIMIT: usize = 253;

const NAME_FAULT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
    regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_FAULT: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_FAULT: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The message for an invalid `value` at `path`.
pub(super) fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {}: {detail}", quote(value))
}

/// What is wrong with `key`; nothing when it is a label key.
pub(super) fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            faults.extend(prefix_faults(prefix));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_FAULT} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_LIMIT {
        faults.push(format!("name part {}", too_long(NAME_LIMIT)));
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME_FAULT}"));
    }
    faults
}

/// What is wrong with `value`; nothing when it is a label value.
pub(super) fn value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > NAME_LIMIT {
        faults.push(too_long(NAME_LIMIT));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE_FAULT.to_owned());
    }
    faults
}

fn prefix_faults(prefix: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    if prefix.len() > PREFIX_LIMIT {
        faults.push(format!("prefix part {}", too_long(PREFIX_LIMIT)));
    }
    if !prefix.split('.').all(is_dns_label) {
        faults.push(format!("prefix part {PREFIX_FAULT}"));
    }
    faults
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn is_name(text: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_dns_label(text: &str) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_plain)
        && bytes.last().is_some_and(is_plain)
        && bytes.iter().all(|byte| is_plain(byte) || *byte == b'-')
}
