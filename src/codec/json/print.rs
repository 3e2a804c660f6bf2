//! Texts as Go prints them in JSON.

/// `text` as a JSON string with its quotes, escaped as Go does it.
pub(crate) fn quoted(text: &str) -> String {
    escape_as_go(&serde_json::Value::from(text).to_string())
}

/// Escapes in JSON what Go escapes beyond the standard.
pub(crate) fn escape_as_go(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}
