//! Go's escapes in JSON.

/// Escapes the characters in printed JSON that Go's `encoding/json` escapes but serde does not:
/// `<`, `>`, `&`, U+2028 and U+2029. Valid JSON has them only inside strings.
pub(crate) fn escape_as_go(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}
