//! The `timeout` parameter, with which a client shortens the deadline of its request.

use std::time::Duration;

use super::Malformed;
use super::Query;

/// The deadline that the client wishes; `None` when it names none, or none above zero.
///
/// Long-running requests (WATCH) must not look at it. Reads whole numbers with a unit, as in
/// `1m30s`: of what else Go's `time.ParseDuration` takes (signs, fractions), the API server judges.
///
/// # Errors
///
/// When the value is something else.
pub fn request_timeout(query: &Query) -> Result<Option<Duration>, Malformed> {
    let Some(text) = query.first("timeout").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let duration = parse_duration(text).ok_or_else(|| {
        let problem = format!("{text:?} is no duration of whole numbers such as 1m30s");
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
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at(digits);
        let end = behind.find(|c: char| c.is_ascii_digit());
        let (unit, next) = behind.split_at(end.unwrap_or(behind.len()));
        let part = number
            .parse::<u64>()
            .ok()?
            .checked_mul(nanoseconds_of(unit)?)?;
        total = total.checked_add(part)?;
        rest = next;
    }
    // Go counts in 63 bits.
    i64::try_from(total).ok()?;
    (!text.is_empty()).then(|| Duration::from_nanos(total))
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
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            let expected = Duration::from_nanos(nanoseconds);
            assert_eq!(parse_duration(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "abc",
            "-",
            "-5s",
            "+5s",
            "1.5s",
            ".5s",
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
        let malformed = parse("timeout=abc").expect_err("no duration");
        assert_eq!(
            malformed.to_string(),
            r#"timeout: "abc" is no duration of whole numbers such as 1m30s"#
        );
    }
}
