//! Formats ages as kubectl shows them, and parses the RFC 3339 times that they start at.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::codec::table::part::Part;

const NANOSECONDS: i128 = 1_000_000_000;
const MINUTE: i128 = 60;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

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
        let (date, time) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let time = time.strip_prefix('T')?;
        let (clock, rest) = time.split_at_checked(8)?;
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
        let (fraction, zone) = fraction(rest)?;
        let is_valid = (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !is_valid {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * DAY
            + i128::from(hour) * HOUR
            + i128::from(minute) * MINUTE
            + i128::from(second)
            - zone_offset(zone)?;
        Some(Self(seconds * NANOSECONDS + fraction))
    }

    /// Parses the time in a field of an object; `None` if the field is absent, null or not a time.
    pub(in crate::codec::table) fn of(value: Part<'_>) -> Option<Self> {
        value.as_str().and_then(|text| Self::parse(&text))
    }

    /// Returns true for the first moment of year 1, which is Go's time without a value.
    pub(in crate::codec::table) fn is_zero(self) -> bool {
        self.0 == days_since_1970(1, 1, 1) * DAY * NANOSECONDS
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

    /// Returns the time from this moment to `now`, such as `5m`.
    pub(in crate::codec::table) fn age_at(self, now: Self) -> Age {
        duration(self, now)
    }
}

/// A formatted duration, such as `5m30s` or `<invalid>`.
#[derive(Clone, Copy)]
pub(in crate::codec::table) struct Age {
    text: [u8; Self::MAX],
    length: u8,
}

impl Age {
    /// The longest ages have three digits or two units, or are [`INVALID`].
    const MAX: usize = 12;

    fn new() -> Self {
        Self {
            text: [0; Self::MAX],
            length: 0,
        }
    }

    fn invalid() -> Self {
        let mut age = Self::new();
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
    let age = Age::new();
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

/// Parses three numbers with exactly the given numbers of digits.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u32; 3]> {
    let mut parts = text.split(separator);
    let mut read = [0; 3];
    for (number, width) in read.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width)?;
        *number = digits(part)?;
    }
    parts.next().is_none().then_some(read)
}

fn digits(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
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

/// Parses a time zone such as `Z` or `+01:00`. Returns its offset from UTC in seconds.
fn zone_offset(zone: &str) -> Option<i128> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes) = match (hours.len(), minutes.len()) {
        (2, 2) => (digits(hours)?, digits(minutes)?),
        _ => return None,
    };
    (hours < 24 && minutes < 60)
        .then(|| sign * (i128::from(hours) * HOUR + i128::from(minutes) * MINUTE))
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: u32, month: u32, day: u32) -> i128 {
    let before = i128::from(year) - 1;
    let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let months: u32 = (1..month).map(|month| days_in(year, month)).sum();
    // From January 1 of year 1 to January 1 of 1970 there are 719,162 days.
    before * 365 + leap_days - 719_162 + i128::from(months) + i128::from(day) - 1
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
            ("2023-02-29T00:00:00Z", None),
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
