//! Go's ways of printing and reading text, which the API's messages show to clients.
//!
//! Used by the parsers of this room and by [`Status`](super::Status).

use std::fmt::Write;

/// Quotes `text` as Go's `%q` does.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            _ => push_escaped(&mut quoted, character),
        }
    }
    quoted.push('"');
    quoted
}

/// Quotes `character` as Go's `encoding/json` names an unexpected one.
pub(super) fn quote_character(character: char) -> String {
    match character {
        '\'' => r"'\''".to_owned(),
        '"' => "'\"'".to_owned(),
        _ => {
            let mut quoted = String::from("'");
            push_escaped(&mut quoted, character);
            quoted.push('\'');
            quoted
        }
    }
}

fn push_escaped(out: &mut String, character: char) {
    match character {
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        ' '..='~' => out.push(character),
        _ if is_printable(character) => out.push(character),
        _ => {
            let code = u32::from(character);
            let written = match code {
                0..=0x1f | 0x7f => write!(out, "\\x{code:02x}"),
                0x80..=0xffff => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
}

/// Close to Go's `unicode.IsPrint`; combining marks differ, being escaped here.
fn is_printable(character: char) -> bool {
    character.escape_debug().len() == 1
}

/// Escapes in printed JSON what Go's `encoding/json` escapes besides: `<`, `>`, `&`, U+2028 and
/// U+2029, none of which stands outside strings.
pub(super) fn escape_html(json: &str) -> String {
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

/// Quotes `text` as Go's `json.Marshal` does.
pub(super) fn quote_json(text: &str) -> String {
    escape_html(&serde_json::Value::from(text).to_string())
}

/// Reads a signed number as Go's `strconv.ParseInt(text, 10, 64)` does.
///
/// # Errors
/// The text of Go's error.
pub(super) fn parse_int64(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    text.parse()
        .map_err(|_| number_error("ParseInt", text, digits))
}

/// Reads an unsigned number as Go's `strconv.ParseUint(text, 10, 64)` does.
///
/// # Errors
/// The text of Go's error.
pub(super) fn parse_uint64(text: &str) -> Result<u64, String> {
    match text.starts_with('+') {
        true => Err(number_error("ParseUint", text, text)),
        false => text
            .parse()
            .map_err(|_| number_error("ParseUint", text, text)),
    }
}

fn number_error(function: &str, text: &str, digits: &str) -> String {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let fault = match is_number {
        true => "value out of range",
        false => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {fault}", quote(text))
}

/// Reads a truth value as Go's `strconv.ParseBool` does; `None` when it is none.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        for (text, quoted) in [
            ("plain", r#""plain""#),
            ("a\"b\\c'", r#""a\"b\\c'""#),
            (
                "\u{0}\u{7}\u{8}\u{c}\n\r\t\u{b}\u{7f}",
                r#""\x00\a\b\f\n\r\t\v\x7f""#,
            ),
            ("é\u{81}\u{2028}\u{fffd}", "\"é\\u0081\\u2028\u{fffd}\""),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
        assert_eq!(quote_character('\u{81}'), r"'\u0081'");
        assert_eq!(quote_character('\''), r"'\''");
        assert_eq!(quote_character('"'), "'\"'");
    }

    #[test]
    fn quotes_json_as_go_does() {
        assert_eq!(
            quote_json("<a&b>\u{2028}\u{1}"),
            r#""\u003ca\u0026b\u003e\u2028\u0001""#
        );
    }

    #[test]
    fn reads_numbers_as_go_does() {
        assert_eq!(parse_int64("+5"), Ok(5));
        assert_eq!(parse_int64("-5"), Ok(-5));
        assert_eq!(parse_uint64("18446744073709551615"), Ok(u64::MAX));
        for (text, message) in [
            ("", r#"strconv.ParseInt: parsing "": invalid syntax"#),
            ("-", r#"strconv.ParseInt: parsing "-": invalid syntax"#),
            ("1.5", r#"strconv.ParseInt: parsing "1.5": invalid syntax"#),
            (
                "9223372036854775808",
                r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
            ),
        ] {
            assert_eq!(parse_int64(text), Err(message.to_owned()));
        }
        for (text, message) in [
            ("+1", r#"strconv.ParseUint: parsing "+1": invalid syntax"#),
            ("-1", r#"strconv.ParseUint: parsing "-1": invalid syntax"#),
            (
                "18446744073709551616",
                r#"strconv.ParseUint: parsing "18446744073709551616": value out of range"#,
            ),
        ] {
            assert_eq!(parse_uint64(text), Err(message.to_owned()));
        }
    }
}
