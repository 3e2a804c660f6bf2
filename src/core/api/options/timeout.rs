//! The `timeout` parameter: a client shortens the deadline of its request with it.

use std::time::Duration;

use super::{Malformed, Query};

/// Returns the value of the `timeout` parameter, or `None` if it is absent, empty or zero.
///
/// It does not apply to long-running requests (WATCH). An example of a duration is `1m30s`.
///
/// # Errors
/// If the value has another form. Go's `time.ParseDuration` accepts a few more forms (a sign,
/// `.5s`), so the caller should leave the decision to the API server.
pub fn request_timeout(query: &Query) -> Result<Option<Duration>, Malformed> {
    let Some(text) = query.first("timeout").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let duration = parse_duration(text).ok_or_else(|| {
        let problem = format!("{text:?} is not a duration such as 1m30s");
        Malformed::new("timeout", problem)
    })?;
    Ok(Some(duration).filter(|duration| !duration.is_zero()))
}

fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !is_number_character(c))?);
        let end = after.find(is_number_character).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        total = total.checked_add(in_nanoseconds(number, nanoseconds_of(unit)?)?)?;
        rest = next;
    }
    // A duration in Go has at most 63 bits of nanoseconds.
    i64::try_from(total).ok()?;
    (!text.is_empty()).then(|| Duration::from_nanos(total))
}

fn is_number_character(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Multiplies `number`, such as `12` or `12.5`, by the nanoseconds of a `unit`, and rounds down.
fn in_nanoseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let part = fraction.parse::<u32>().ok()?;
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(part) * u128::from(unit) / u128::from(scale);
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(u64::try_from(part).ok()?)
}

fn nanoseconds_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("32s", 32_000_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("3µs", 3_000),
            ("1.5s", 1_500_000_000),
            ("1m0.25s", 60_250_000_000),
            ("0.0000000019s", 1),
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            let expected = Duration::from_nanos(nanoseconds);
            assert_eq!(parse_duration(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "abc",
            "-",
            ".5s",
            "5.s",
            "1.2.3s",
            ".5s",
            "5.s",
            "1.2.3s",
            ".5s",
            "5.s",
            "1.2.3s",
            "5",
            "5x",
            "5 s",
            "1s2",
            "s",
            "3000000h",
            "9223372036854775808ns",
            "5S",
            "1d",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn reads_the_parameter() {
        let parse = |query| request_timeout(&Query::parse(query));
        for (query, expected) in [
            ("", None),
            ("timeout=", None),
            ("timeout=0s", None),
            ("timeout=5s&timeout=abc", Some(Duration::from_secs(5))),
        ] {
            assert_eq!(parse(query), Ok(expected), "{query}");
        }
        let malformed = parse("timeout=abc").expect_err("not a duration");
        assert_eq!(
            malformed.to_string(),
            r#"timeout: "abc" is not a duration such as 1m30s"#
        );
    }
}
