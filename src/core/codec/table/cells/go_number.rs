//! Prints JSON numbers and values exactly as Go does; serde_json prints some numbers differently.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::api::escape_as_go;

/// Appends a value as Go's JSON encoder prints it, with `<`, `>` and `&` escaped.
pub fn put_json(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) => out.push_str(&json_number(number)),
        Value::Array(items) => {
            out.push('[');
            put_separated(out, items, put_json);
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            put_separated(out, members, |out, (key, member)| {
                put_text(out, key);
                out.push(':');
                put_json(out, member);
            });
            out.push('}');
        }
        Value::String(text) => put_text(out, text),
        other => out.push_str(&other.to_string()),
    }
}

/// Returns a value as Go's JSON encoder prints it.
pub(in crate::codec::table) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    put_json(&mut text, value);
    text
}

/// Appends items with commas between them. `put` appends an item.
pub(in crate::codec::table) fn put_separated<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut put: impl FnMut(&mut String, T),
) {
    for (position, item) in items.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        put(out, item);
    }
}

pub(in crate::codec::table) fn put_text(out: &mut String, text: &str) {
    // Most texts of cells are short and need no escape sequences.
    let is_plain = |byte: u8| {
        byte.is_ascii()
            && !byte.is_ascii_control()
            && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&')
    };
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&escape_as_go(&Value::from(text).to_string()));
    }
}

/// Formats a number as Go's JSON encoder does.
fn json_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float, 1e-6..1e21, 1),
        _ => number.to_string(),
    }
}

/// Formats a number as Go prints it in text: very large and very small floats have an exponent.
pub(in crate::codec::table) fn number_text(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) => float_text(float, 1e-4..1e6, 2),
        _ => number.to_string(),
    }
}

/// Formats a float, with an exponent of at least `digits` digits if its size is not in `plain`.
fn float_text(float: f64, plain: Range<f64>, digits: usize) -> String {
    let size = float.abs();
    if size != 0.0 && !plain.contains(&size) {
        exponent(float, digits)
    } else {
        float.to_string()
    }
}

/// Formats a float with an exponent that has a sign and at least `digits` digits, as Go does.
fn exponent(float: f64, digits: usize) -> String {
    let shortest = format!("{float:e}");
    match shortest.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{mantissa}e-{exponent:0>digits$}"),
            None => format!("{mantissa}e+{exponent:0>digits$}"),
        },
        None => shortest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_go_prints_them() {
        let cases = [
            (1.5, "1.5", "1.5"),
            (3.0, "3", "3"),
            (100_000.5, "100000.5", "100000.5"),
            (1_234_567.5, "1234567.5", "1.2345675e+06"),
            (0.0001, "0.0001", "0.0001"),
            (-0.00001, "-0.00001", "-1e-05"),
            (1e-7, "1e-7", "1e-07"),
            (1e20, "100000000000000000000", "1e+20"),
            (1.5e21, "1.5e+21", "1.5e+21"),
        ];
        for (float, json, text) in cases {
            let number = Number::from_f64(float).unwrap();
            assert_eq!(json_number(&number), json);
            assert_eq!(number_text(&number), text);
        }
    }
}
