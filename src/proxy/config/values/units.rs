//! The text format of durations and sizes in flags and in the configuration file.

use std::fmt;
use std::time::Duration;

use super::text::written_as_text;

/// A duration, written `90s`, `10m`, `1h 30m` or `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct Period(pub(in crate::config) Duration);

/// A number of bytes, written `67108864`, `65536Ki`, `64Mi` or `1Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct ByteSize(pub(in crate::config) usize);

const EXPECTED_DURATION: &str = "a number and a unit, such as 30s or 10m";
/// What [`parse_duration`] accepts, as a regular expression that allows any word as a unit.
pub(in crate::config) const PERIOD_PATTERN: &str =
    "[0-9]+(\\.[0-9]+)? ?[A-Za-zµ]+( ?[0-9]+(\\.[0-9]+)? ?[A-Za-zµ]+)*";
const EXPECTED_COUNT: &str = "a number from 1";
const EXPECTED_NUMBER: &str = "a number from 0";
const EXPECTED_BYTES: &str = "a number of bytes, such as 1048576 or 64Mi";
/// The longest duration that is accepted, so that adding it to a time cannot overflow.
const MAX_DURATION: Duration = Duration::from_millis(u64::MAX);

/// Parses a duration such as `90s`, `10m`, `1h 30m` or `500ms`.
///
/// # Errors
///
/// If the text is not a duration, is ambiguous (`10M`), or is too long for the clock. The message
/// says what was expected and what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.contains('M') {
        return Err(format!(
            "expected {EXPECTED_DURATION}: {text} means months; minutes are written m"
        ));
    }
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("expected {EXPECTED_DURATION}: {error}"))?;
    if duration > MAX_DURATION {
        return Err(format!("{text} is too long"));
    }
    Ok(duration)
}

/// Parses a number of bytes such as `1048576`, `1024Ki`, `64Mi` or `1Gi`.
///
/// # Errors
///
/// If the text is not a size, is ambiguous (`64m`), or is too large for `usize`. The message says
/// what was expected and what is wrong.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    if text.ends_with('m') {
        return Err(format!(
            "expected {EXPECTED_BYTES}: {text} means thousandths; millions are written M, mebibytes Mi"
        ));
    }
    let bytes: bytesize::ByteSize = text
        .parse()
        .map_err(|_| format!("expected {EXPECTED_BYTES}: {text:?} is none"))?;
    // The parser returns the largest number for every size that is too large.
    let counted = usize::try_from(bytes.as_u64()).ok();
    counted
        .filter(|bytes| *bytes < usize::MAX)
        .ok_or_else(|| format!("{text} is too large"))
}

/// Changes a message of serde: replaces the name of an integer type by the numbers that the setting
/// may have.
pub(in crate::config) fn without_types(message: &str) -> String {
    let Some((before, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "a nonzero usize" | "a nonzero u32" => EXPECTED_COUNT,
        "usize" | "u32" => EXPECTED_NUMBER,
        // The only small number is `log.verbosity`.
        "u8" => "0, 1 or 2",
        other => other,
    };
    format!("{before}, expected {expected}")
}

// === impl Period ===

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Period {
    fn parse(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

written_as_text!(Period, EXPECTED_DURATION, Period::parse, None, {
    "type": "string",
    "pattern": format!("^{PERIOD_PATTERN}$"),
    "x-value": "DURATION",
});

// === impl ByteSize ===

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
        let mut whole = units
            .iter()
            .filter(|(bits, _)| self.0 > 0 && self.0.trailing_zeros() >= *bits);
        match whole.next() {
            Some((bits, unit)) => write!(f, "{}{unit}", self.0 >> bits),
            None => self.0.fmt(f),
        }
    }
}

impl ByteSize {
    fn parse(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self)
    }

    fn of_number(bytes: u64) -> Result<Self, String> {
        let bytes = usize::try_from(bytes);
        bytes.map(Self).map_err(|error| error.to_string())
    }
}

written_as_text!(ByteSize, EXPECTED_BYTES, ByteSize::parse, Some(ByteSize::of_number), {
    "type": ["string", "integer"],
    "pattern": "^[0-9]+(\\.[0-9]+)? *([KMGTPEkmgtpe]?[Bb]?|[KMGTPEkmgtpe][Ii][Bb]?)$",
    "minimum": 0,
    "x-value": "BYTES",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            ("0s", Some(Duration::ZERO)),
            ("500ms", Some(Duration::from_millis(500))),
            ("75s", Some(Duration::from_secs(75))),
            ("007s", Some(Duration::from_secs(7))),
            ("10m", Some(Duration::from_secs(600))),
            ("100000m", Some(Duration::from_secs(6_000_000))),
            ("1h", Some(Duration::from_secs(3600))),
            ("1h30m", Some(Duration::from_secs(5400))),
            ("1m 15s", Some(Duration::from_secs(75))),
            ("1d", Some(Duration::from_secs(86_400))),
            ("10", None),
            ("", None),
            ("s", None),
            ("10M", None),
            ("-1s", None),
            ("1x", None),
            ("99999999999999999h", None),
            ("18446744073709551615s", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_duration(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_they_are_printed() {
        let printed = [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(1500), "1s 500ms"),
            (Duration::from_secs(75), "1m 15s"),
            (Duration::from_secs(600), "10m"),
            (Duration::from_secs(5400), "1h 30m"),
            (Duration::from_secs(86_400 * 40), "1month 9days 13h 26m 24s"),
            (Duration::from_nanos(1_001), "1us 1ns"),
        ];
        for (duration, text) in printed {
            assert_eq!(Period(duration).to_string(), text);
            assert_eq!(parse_duration(text), Ok(duration));
        }
    }

    #[test]
    fn sizes() {
        let rows = [
            ("0", Some(0)),
            ("1000", Some(1000)),
            ("1048576", Some(1 << 20)),
            ("1k", Some(1000)),
            ("2Ki", Some(2 << 10)),
            ("64Mi", Some(64 << 20)),
            ("1Gi", Some(1 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("256 MiB", Some(256 << 20)),
            ("1MB", Some(1_000_000)),
            ("64m", None),
            ("Mi", None),
            ("", None),
            ("-1", None),
            ("1Xi", None),
            ("99999999999999999Gi", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_they_are_printed() {
        for (bytes, text) in [
            (0, "0"),
            (1000, "1000"),
            (64 << 10, "64Ki"),
            (1025 << 10, "1025Ki"),
            (16 << 20, "16Mi"),
            (3 << 30, "3Gi"),
            (1 << 40, "1024Gi"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
    }

    #[test]
    fn errors_name_the_mistake_and_a_valid_value() {
        let wrong = parse_duration("10x").expect_err("no unit");
        assert!(
            wrong.contains("such as 30s") && wrong.contains("\"x\""),
            "{wrong}"
        );
        let wrong = parse_bytes("10Xi").expect_err("no unit");
        assert!(
            wrong.contains("such as 1048576") && wrong.contains("\"10Xi\""),
            "{wrong}"
        );
        for (message, expected) in [
            (
                "invalid value: integer `0`, expected a nonzero usize",
                "invalid value: integer `0`, expected a number from 1",
            ),
            (
                "invalid type: string \"x\", expected u32",
                "invalid type: string \"x\", expected a number from 0",
            ),
            (
                "invalid type: map, expected a boolean",
                "invalid type: map, expected a boolean",
            ),
        ] {
            assert_eq!(without_types(message), expected);
        }
    }
}
