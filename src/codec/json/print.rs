//! Texts as Go prints them in JSON.

use crate::api::escape_as_go;

/// `text` as a JSON string with its quotes, escaped as Go does it.
pub(crate) fn quoted(text: &str) -> String {
    escape_as_go(&serde_json::Value::from(text).to_string())
}
