//! The `timeout` parameter, with which a client shortens the deadline of its request.

use std::fmt::Write;
use std::time::Duration;

use super::Query;
use super::Status;

/// The deadline that the client wishes; `None` when it names none, or none above zero.
///
/// Long-running requests (WATCH) must not look at it.
///
/// # Errors
/// The 400 that the API server answers when the value is no duration.
pub fn request_timeout(query: &Query) -> Result<Option<Duration>, Status> {
    let Some(text) = query.first("timeout").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let nanoseconds = parse_duration(text).map_err(|fault| {
        let message = format!("invalid timeout specified in the request URL - time: {fault}");
        Status::bad_request(message)
    })?;
    let duration = u64::try_from(nanoseconds).ok().map(Duration::from_nanos);
    Ok(duration.filter(|duration| !duration.is_zero()))
}

/// Reads a duration as Go's `time.ParseDuration` does (`1h2.5m`, `-3ms`), in nanoseconds.
fn parse_duration(text: &str) -> Result<i64, String> {
    let malformed = || format!("invalid duration {}", quote(text));
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(malformed());
    }
    let mut total: u64 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let unit_at = number.unwrap_or(rest.len());
        let (number, behind) = split_number(rest, unit_at).ok_or_else(malformed)?;
        if behind.is_empty() || behind.starts_with('.') {
            return Err(format!("missing unit in duration {}", quote(text)));
        }
        let unit_end = behind
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_end);
        let unit = nanoseconds_of(unit)
            .ok_or_else(|| format!("unknown unit {} in duration {}", quote(unit), quote(text)))?;
        let part = number.in_nanoseconds(unit).ok_or_else(malformed)?;
        total = total
            .checked_add(part)
            .filter(|total| *total <= LIMIT)
            .ok_or_else(malformed)?;
        rest = next;
    }
    match text.starts_with('-') {
        true => Ok(0_i64.wrapping_sub_unsigned(total)),
        false => i64::try_from(total).map_err(|_| malformed()),
    }
}

/// What fits a signed 64-bit count, the most negative value included.
const LIMIT: u64 = 1 << 63;

struct Decimal<'a> {
    whole: u64,
    fraction: &'a str,
}

impl Decimal<'_> {
    fn in_nanoseconds(&self, unit: u64) -> Option<u64> {
        let whole = self.whole.checked_mul(unit).filter(|part| *part <= LIMIT)?;
        if self.fraction.is_empty() {
            return Some(whole);
        }
        let (mut digits, mut scale) = (0_u64, 1_f64);
        for digit in self.fraction.bytes() {
            // Digits beyond what 63 bits hold are too small to matter.
            let Some(more) = digits
                .checked_mul(10)
                .and_then(|digits| digits.checked_add(u64::from(digit - b'0')))
                .filter(|digits| *digits <= LIMIT)
            else {
                break;
            };
            digits = more;
            scale *= 10.0;
        }
        let part = digits as f64 * (unit as f64 / scale);
        whole.checked_add(part as u64).filter(|sum| *sum <= LIMIT)
    }
}

/// Takes `12`, `12.5`, `.5` or `5.` off the front; `None` when there is no digit or an overflow.
fn split_number(text: &str, end: usize) -> Option<(Decimal<'_>, &str)> {
    let number = &text[..end];
    let (whole, fraction, length) = match number.split_once('.') {
        None => (number, "", end),
        Some((whole, behind)) => {
            // A second point belongs to what follows.
            let fraction = behind.split('.').next().unwrap_or_default();
            (whole, fraction, whole.len() + 1 + fraction.len())
        }
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let value = match whole {
        "" => 0,
        _ => whole.parse().ok().filter(|value| *value <= LIMIT)?,
    };
    let decimal = Decimal {
        whole: value,
        fraction,
    };
    Some((decimal, &text[length..]))
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

/// Quotes as Go's package `time` does: all bytes outside printable ASCII become `\xNN`.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => quoted.push(char::from(byte)),
            _ => {
                let written = write!(quoted, "\\x{byte:02x}");
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_durations() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("1.5s", 1_500_000_000),
            ("-.5m", -30_000_000_000),
            ("+5.s", 5_000_000_000),
            ("3µs", 3_000),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse_duration(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for (text, fault) in [
            ("abc", r#"invalid duration "abc""#),
            ("-", r#"invalid duration "-""#),
            (".s", r#"invalid duration ".s""#),
            ("5", r#"missing unit in duration "5""#),
            ("5.1.2s", r#"missing unit in duration "5.1.2s""#),
            ("5x", r#"unknown unit "x" in duration "5x""#),
            (
                "1s2é",
                r#"unknown unit "\xc3\xa9" in duration "1s2\xc3\xa9""#,
            ),
            (
                "9223372036854775808ns",
                r#"invalid duration "9223372036854775808ns""#,
            ),
            ("3000000h", r#"invalid duration "3000000h""#),
            ("\"\\", r#"invalid duration "\"\\""#),
        ] {
            assert_eq!(parse_duration(text), Err(fault.to_owned()), "{text}");
        }
    }

    #[test]
    fn reads_the_parameter() {
        let parse = |query| request_timeout(&Query::parse(query));
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("timeout="), Ok(None));
        assert_eq!(parse("timeout=0s"), Ok(None));
        assert_eq!(parse("timeout=-5s"), Ok(None));
        assert_eq!(
            parse("timeout=5s&timeout=abc"),
            Ok(Some(Duration::from_secs(5)))
        );
        let message =
            r#"invalid timeout specified in the request URL - time: invalid duration "abc""#;
        assert_eq!(parse("timeout=abc"), Err(Status::bad_request(message)));
    }
}
