//! Formats ages as kubectl shows them, and parses the RFC 3339 times that they start at.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, datetime};

use crate::codec::table::part::Part;

const NANOSECONDS: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * NANOSECONDS;

/// The cell for the age of an object without a valid time.
pub(in crate::codec::table) const UNKNOWN: &str = "<unknown>";
/// The cell for a negative duration or a time that cannot be parsed.
pub(in crate::codec::table) const INVALID: &str = "<invalid>";

/// A point in time, in nanoseconds since the start of 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::codec::table) struct Moment(i128);

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i128,
            Err(error) => -(error.duration().as_nanos() as i128),
        })
    }
}

impl Moment {
    /// Parses an RFC 3339 time such as `2026-11-20T10:00:00Z`, with any fraction and zone.
    pub(in crate::codec::table) fn parse(text: &str) -> Option<Self> {
        let (time, rest) = text.split_at_checked("0000-00-00T00:00:00".len())?;
        // jiff parses other forms and leap seconds too, which Go refuses.
        if !has_form(time, "0000-00-00T00:00:00") {
            return None;
        }
        let two_digits = |at: usize| time[at..at + 2].parse::<i8>().ok();
        let (year, month, day) = (time[..4].parse().ok()?, two_digits(5)?, two_digits(8)?);
        let (hour, minute, second) = (two_digits(11)?, two_digits(14)?, two_digits(17)?);
        let local = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
        let (fraction, zone) = fraction(rest)?;
        Some(Self(
            nanoseconds_since_1970(local) + fraction - zone_offset(zone)?,
        ))
    }

    /// Parses the time in a field of an object; `None` if the field is absent, null or not a time.
    pub(in crate::codec::table) fn of(value: Part<'_>) -> Option<Self> {
        value.as_str().and_then(|text| Self::parse(&text))
    }

    /// Returns true for the first moment of year 1, which is Go's time without a value.
    pub(in crate::codec::table) fn is_zero(self) -> bool {
        self.0 == nanoseconds_since_1970(datetime(1, 1, 1, 0, 0, 0, 0))
    }

    /// Returns the moments from `earliest` on that are a whole number of seconds from this one,
    /// without end.
    pub(in crate::codec::table) fn seconds_from(
        self,
        earliest: Self,
    ) -> impl Iterator<Item = Self> {
        let fraction = (self.0 - earliest.0).rem_euclid(NANOSECONDS);
        (0..).map(move |second| Self(earliest.0 + fraction + second * NANOSECONDS))
    }
}

/// A formatted duration, such as `5m30s` or `<invalid>`.
#[derive(Clone, Copy, Default)]
pub(in crate::codec::table) struct Age {
    text: [u8; Self::MAX],
    length: u8,
}

impl Age {
    /// The longest ages have three digits or two units, or are [`INVALID`].
    const MAX: usize = 12;

    fn invalid() -> Self {
        let mut age = Self::default();
        INVALID.bytes().for_each(|byte| age.push(byte));
        age
    }

    pub(in crate::codec::table) fn as_str(&self) -> &str {
        let text = &self.text[..usize::from(self.length)];
        // Only ASCII is ever pushed.
        std::str::from_utf8(text).unwrap_or(INVALID)
    }

    /// Appends a number, which has at most four digits, and its unit.
    fn with(mut self, number: i64, unit: u8) -> Self {
        let mut power = 1;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            self.push(b'0' + (number / power % 10) as u8);
            power /= 10;
        }
        self.push(unit);
        self
    }

    /// Appends a number and its unit, unless the number is 0.
    fn with_rest(self, number: i64, unit: u8) -> Self {
        match number {
            0 => self,
            _ => self.with(number, unit),
        }
    }

    fn push(&mut self, byte: u8) {
        self.text[usize::from(self.length)] = byte;
        self.length += 1;
    }
}

/// Formats the time from `start` to `end`, such as `5m30s`; longer times have coarser units.
///
/// As in Go, no time is longer than 2^63 nanoseconds, which are 292 years.
pub(in crate::codec::table) fn duration(start: Moment, end: Moment) -> Age {
    let nanoseconds = (end.0 - start.0).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let seconds = nanoseconds / NANOSECONDS as i64;
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let (days, years) = (hours / 24, hours / (24 * 365));
    let age = Age::default();
    match seconds {
        ..-1 => Age::invalid(),
        -1 => age.with(0, b's'),
        0..120 => age.with(seconds, b's'),
        120..600 => age.with(minutes, b'm').with_rest(seconds % 60, b's'),
        600..10_800 => age.with(minutes, b'm'),
        10_800..28_800 => age.with(hours, b'h').with_rest(minutes % 60, b'm'),
        28_800..172_800 => age.with(hours, b'h'),
        172_800..691_200 => age.with(days, b'd').with_rest(hours % 24, b'h'),
        691_200..63_072_000 => age.with(days, b'd'),
        63_072_000..252_288_000 => age.with(years, b'y').with_rest(days % 365, b'd'),
        _ => age.with(years, b'y'),
    }
}

/// Returns true if `text` has a digit wherever `form` has a zero, and else the same characters.
fn has_form(text: &str, form: &str) -> bool {
    let fits = |(byte, expected): (u8, u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}

fn nanoseconds_since_1970(time: DateTime) -> i128 {
    time.duration_since(datetime(1970, 1, 1, 0, 0, 0, 0))
        .as_nanos()
}

/// Parses an optional fraction of a second. Returns it in nanoseconds, with the rest of the text.
fn fraction(text: &str) -> Option<(i128, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (digits, zone) = rest.split_at(end);
    let nanoseconds: i128 = format!("{digits:0<9.9}").parse().ok()?;
    (end > 0).then_some((nanoseconds, zone))
}

/// Parses a time zone such as `Z` or `+01:00`. Returns its offset from UTC in nanoseconds.
fn zone_offset(zone: &str) -> Option<i128> {
    let (sign, offset) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", offset) => (1, offset),
        ("-", offset) => (-1, offset),
        _ => return None,
    };
    if !has_form(offset, "00:00") {
        return None;
    }
    let (hours, minutes): (i128, i128) = (offset[..2].parse().ok()?, offset[3..].parse().ok()?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_reads_them() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-20T10:00:00Z", Some(1_795_168_800)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2026-11-20T10:00:00+01:00", Some(1_795_165_200)),
            ("2026-11-20T10:00:00-08:00", Some(1_795_197_600)),
            ("0000-03-01T00:00:00Z", Some(-62_162_035_200)),
            ("9999-12-31T23:59:59-23:59", Some(253_402_387_139)),
            ("2023-02-29T00:00:00Z", None),
            ("0000-00-00T00:00:00Z", None),
            ("2016-12-31T23:59:60Z", None),
            ("2026-11-20t10:00:00Z", None),
            ("2026-11-20T10:00:00z", None),
            ("2026-11-20T10:00:00+01", None),
            ("2026-11-20T10:00:00+0100", None),
            ("2026-11-20T10:00:00+24:00", None),
            ("2026-11-20T10:00:00+00:60", None),
            ("2026-11-20T10:00:00Z[UTC]", None),
            ("2026-11-20T10:00Z", None),
            ("20261120T100000Z0000", None),
            ("+002026-11-20T10:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-20T24:00:00Z", None),
            ("2026-11-20 10:00:00Z", None),
            ("2026-11-20T10:00:00", None),
            ("2026-11-20T10:00:00.Z", None),
            ("2026-11-20", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            let wanted = seconds.map(|seconds: i128| Moment(seconds * NANOSECONDS));
            assert_eq!(Moment::parse(text), wanted, "{text}");
        }
        let fraction = Moment::parse("1970-01-01T00:00:01.5Z");
        assert_eq!(fraction, Some(Moment(1_500_000_000)));
        // Digits after the ninth are dropped.
        let fraction = Moment::parse("1970-01-01T00:00:01.1234567899Z");
        assert_eq!(fraction, Some(Moment(1_123_456_789)));
        assert_eq!(Moment::parse("1970-01-01T00:00:01,5Z"), None);
    }

    #[test]
    fn a_moment_ahead_by_less_than_two_seconds_is_now() {
        let at = |milliseconds: i128| Moment(milliseconds * 1_000_000);
        assert_eq!(duration(at(1_999), at(0)).as_str(), "0s");
        assert_eq!(duration(at(2_000), at(0)).as_str(), INVALID);
    }

    #[test]
    fn long_times_have_coarse_units() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (28_799, "7h59m"),
            (172_799, "47h"),
            (172_800, "2d"),
            (691_199, "7d23h"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (252_287_999, "7y364d"),
            (252_288_000, "8y"),
            (i64::MAX, "292y"),
        ] {
            let end = Moment(i128::from(seconds) * NANOSECONDS);
            assert_eq!(duration(Moment(0), end).as_str(), expected, "{seconds}");
        }
    }
}
