//! The columns that a CustomResourceDefinition defines for its resources.

use serde_json::{Number, Value};

use super::cells::age::{INVALID, Moment, UNKNOWN};
use super::cells::cell::Cell;
use super::cells::go_number::{json_text, number_text};
use super::cells::value::or;
use super::column::ColumnDefinition;
use super::json_path::JsonPath;
use super::kinds::default_columns;
use super::part::Part;

/// A column of a custom resource, and the path of its cells in an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CustomColumn {
    pub(super) definition: ColumnDefinition,
    /// The path of the cells; `None` if the definition's path cannot be parsed.
    path: Option<JsonPath>,
}

impl CustomColumn {
    /// Returns the columns after the name column, from one version of a CustomResourceDefinition.
    pub(super) fn of_version(version: &Value) -> Vec<Self> {
        let columns = version["additionalPrinterColumns"].as_array();
        match columns.map(Vec::as_slice).unwrap_or_default() {
            [] => vec![Self::age()],
            columns => columns.iter().map(Self::of).collect(),
        }
    }

    fn of(column: &Value) -> Self {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let path = text("jsonPath");
        let otherwise = format!("Custom resource definition column (in JSONPath format): {path}");
        let priority = column["priority"].as_i64();
        let priority = priority.and_then(|priority| i32::try_from(priority).ok());
        Self {
            path: JsonPath::parse(path),
            definition: ColumnDefinition {
                name: text("name").to_owned(),
                column_type: text("type").to_owned(),
                format: text("format").to_owned(),
                description: or(text("description"), &otherwise).into_owned(),
                priority: priority.unwrap_or_default(),
            },
        }
    }

    /// Returns the age column, which is the only column if the definition has none.
    fn age() -> Self {
        let created_at = &default_columns()[1];
        Self {
            path: JsonPath::parse(".metadata.creationTimestamp"),
            definition: ColumnDefinition {
                name: "Age".to_owned(),
                ..created_at.clone()
            },
        }
    }

    /// Returns true if the column's path always finds the values that the API server finds.
    pub(super) fn is_supported(&self) -> bool {
        self.path.as_ref().is_some_and(JsonPath::is_exact)
    }

    /// Returns the first value at the column's path, in the form for the column's type. Null if
    /// there is no value or its type does not match.
    pub(super) fn cell(&self, object: Part<'_>) -> Cell {
        let found = self.path.as_ref().and_then(|path| path.first(object));
        self.cell_with(found.as_ref())
    }

    /// Does what [`CustomColumn::cell`] does, for an object that was parsed into a tree.
    pub(super) fn cell_in_tree(&self, object: &Value) -> Cell {
        let found = self.path.as_ref().and_then(|path| path.find(object));
        self.cell_with(found.and_then(|values| values.first().copied()))
    }

    fn cell_with(&self, found: Option<&Value>) -> Cell {
        let Some(value) = found else {
            return Value::Null.into();
        };
        match (self.definition.column_type.as_str(), value) {
            ("string", _) => printed(value).into(),
            ("integer", Value::Number(number)) => integer(number).into(),
            ("number", Value::Number(number)) => float(number).into(),
            ("boolean", Value::Bool(_)) => value.clone().into(),
            ("date", Value::String(time)) => date(time),
            _ => Value::Null.into(),
        }
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(_) | Value::Object(_) => json_text(value),
    }
}

/// Converts a number to an integer as Go does: truncated, or the lowest `i64` if out of range.
fn integer(number: &Number) -> Value {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer.into(),
        (None, Some(float)) if float.abs() < i64::MAX as f64 => (float as i64).into(),
        _ => i64::MIN.into(),
    }
}

/// Converts a number to a float as Go does. An integer that a float represents exactly stays one,
/// because both are printed alike.
fn float(number: &Number) -> Value {
    let exact = number
        .as_i64()
        .filter(|integer| integer.unsigned_abs() < 1 << 53);
    match exact {
        Some(integer) => integer.into(),
        None => number.as_f64().into(),
    }
}

/// Returns the age of what happened at `time`. As at the API server, an empty text and `null` are
/// the zero time, which has no age.
fn date(time: &str) -> Cell {
    match (time, Moment::parse(time)) {
        ("" | "null", _) => UNKNOWN.into(),
        (_, Some(time)) if time.is_zero() => UNKNOWN.into(),
        (_, Some(time)) => time.into(),
        (_, None) => INVALID.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;
    use crate::codec::table::part::Document;

    /// Returns the cell of `value` in a column of this type, in 2026, as JSON text.
    fn cell(column_type: &str, value: &Value) -> String {
        let column = json!({ "name": "x", "type": column_type, "jsonPath": ".x" });
        let now = UNIX_EPOCH + Duration::from_secs(1_795_168_800);
        let object = json!({ "x": value }).to_string();
        let cell = CustomColumn::of(&column).cell(Document::new(object.as_bytes()).root());
        json_text(&cell.at(now.into()))
    }

    #[test]
    fn dates_are_printed_as_by_the_api_server() {
        for (time, expected) in [
            ("", "<unknown>"),
            ("null", "<unknown>"),
            ("0001-01-01T00:00:00Z", "<unknown>"),
            ("0001-01-01T01:00:00+01:00", "<unknown>"),
            ("0000-12-31T23:00:00-01:00", "<unknown>"),
            // Go's durations end at 292 years.
            ("0001-01-01T00:00:01Z", "292y"),
            ("0000-01-01T00:00:00Z", "292y"),
            ("1600-01-01T00:00:00Z", "292y"),
            ("1826-01-01T00:00:00Z", "201y"),
            ("9999-01-01T00:00:00Z", "<invalid>"),
            ("nil", "<invalid>"),
        ] {
            // The angle brackets are escaped, as in all JSON of Go.
            let expected = expected.replace('<', "\\u003c").replace('>', "\\u003e");
            assert_eq!(
                cell("date", &json!(time)),
                format!("\"{expected}\""),
                "{time}"
            );
        }
        assert_eq!(cell("date", &Value::Null), "null");
    }

    #[test]
    fn large_integers_are_printed_as_floats_in_a_number_column() {
        for (number, expected) in [
            (0, "0"),
            (-7, "-7"),
            ((1 << 53) - 1, "9007199254740991"),
            ((1 << 53) + 1, "9007199254740992"),
            // The shortest digits that parse to this float, as Go prints it.
            (i64::MAX, "9223372036854776000"),
            (i64::MIN, "-9223372036854776000"),
        ] {
            assert_eq!(cell("number", &json!(number)), expected);
        }
        assert_eq!(cell("integer", &json!(i64::MIN)), i64::MIN.to_string());
    }
}
