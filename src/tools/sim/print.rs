//! JSON text in the API server's layouts.

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

/// Indents one line of JSON by two spaces per level, without a line break at the end. Copies
/// numbers and strings unchanged.
pub(super) fn indent_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let (mut in_text, mut escaped) = (false, false);
    let mut characters = json.trim_end().chars().peekable();
    while let Some(character) = characters.next() {
        if in_text {
            text.push(character);
            in_text = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            '{' | '[' => {
                text.push(character);
                match characters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
                text.push(character);
            }
            ',' => {
                text.push(character);
                new_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ => {
                in_text = character == '"';
                text.push(character);
            }
        }
    }
    text
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_compact_and_indented() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "<:,{\"\\"}], "e": 1e20});
        assert_eq!(
            compact(&value),
            r#"{"a":[],"b":{},"c":[1,{"d":"\u003c:,{\"\\"}],"e":100000000000000000000}"#
        );
        assert_eq!(
            indent_json(&line(&value)),
            r#"{
  "a": [],
  "b": {},
  "c": [
    1,
    {
      "d": "\u003c:,{\"\\"
    }
  ],
  "e": 100000000000000000000
}"#
        );
    }
}
