//! Durations and sizes as people write them, on the command line and in the file alike.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de::Error;
use serde::de::Visitor;

/// A duration, written `90s`, `10m`, `1h` or `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(pub(super) Duration);

/// A number of bytes, written `67108864`, `65536Ki`, `64Mi` or `1Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) usize);

const EXPECTED_DURATION: &str = "a number and a unit, such as 30s or 10m";
const EXPECTED_BYTES: &str = "a number of bytes, such as 1048576 or 64Mi";

/// Parses `90s`, `10m`, `1h`, `500ms`: a number and one unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("expected {EXPECTED_DURATION}"))?;
    let unit = &text[digits.len()..];
    let milliseconds = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let milliseconds: u64 =
        milliseconds.ok_or_else(|| format!("{unit:?} is no unit; use ms, s, m or h"))?;
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text} is too long"))
}

/// Parses `1048576`, `1024Ki`, `64Mi`, `1Gi`: a number and at most one unit.
pub(super) fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: usize = digits
        .parse()
        .map_err(|_| format!("expected {EXPECTED_BYTES}"))?;
    let unit = &text[digits.len()..];
    let bytes = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(format!("{unit:?} is no unit; use Ki, Mi or Gi")),
    };
    number
        .checked_mul(bytes)
        .ok_or_else(|| format!("{text} is too much"))
}

// === impl Period ===

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u128); 3] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let milliseconds = self.0.as_millis();
        if milliseconds == 0 {
            return f.write_str("0s");
        }
        for (unit, length) in UNITS {
            if milliseconds.is_multiple_of(length) {
                return write!(f, "{}{unit}", milliseconds / length);
            }
        }
        write!(f, "{milliseconds}ms")
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PeriodVisitor)
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" })
    }
}

struct PeriodVisitor;

impl Visitor<'_> for PeriodVisitor {
    type Value = Period;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED_DURATION)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Period, E> {
        parse_duration(text).map(Period).map_err(E::custom)
    }
}

// === impl ByteSize ===

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": "^[0-9]+(Ki|Mi|Gi)?$",
            "minimum": 0,
        })
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED_BYTES)
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
        usize::try_from(bytes).map(ByteSize).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        parse_bytes(text).map(ByteSize).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            ("500ms", Some(Duration::from_millis(500))),
            ("90s", Some(Duration::from_secs(90))),
            ("10m", Some(Duration::from_secs(600))),
            ("1h", Some(Duration::from_secs(3600))),
            ("10", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("99999999999999999h", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_printed_as_they_are_read() {
        for text in ["500ms", "90s", "10m", "1h", "0s"] {
            let period = Period(parse_duration(text).expect(text));
            assert_eq!(period.to_string(), text);
        }
    }

    #[test]
    fn sizes() {
        let rows = [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("2Ki", Some(2 << 10)),
            ("64Mi", Some(64 << 20)),
            ("1Gi", Some(1 << 30)),
            ("1MB", None),
            ("Mi", None),
            ("-1", None),
            ("99999999999999999Gi", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
    }
}
