//! Prints JSON strings exactly as Go's encoder does.

use crate::api::escape_as_go;

/// Encodes `text` as a JSON string with quotes, with the characters escaped that Go escapes.
pub(crate) fn quoted(text: &str) -> String {
    escape_as_go(&serde_json::Value::from(text).to_string())
}
