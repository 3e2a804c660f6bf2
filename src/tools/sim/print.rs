//! JSON text in one line, as the API server encodes it.

use kubefan_core::codec::put_json;
use serde_json::Value;

/// Formats `value` as JSON in one line, without a line break.
pub(super) fn compact(value: &Value) -> String {
    let mut text = String::new();
    put_json(&mut text, value);
    text
}

/// Formats `value` as JSON in one line, with a line break at the end.
pub(super) fn line(value: &Value) -> String {
    compact(value) + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_compact() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "<:,{\"\\"}], "e": 1e20});
        assert_eq!(
            compact(&value),
            r#"{"a":[],"b":{},"c":[1,{"d":"\u003c:,{\"\\"}],"e":100000000000000000000}"#
        );
    }
}
