//! The values that a setting may have, as text: `from 1s to 24d`, `at least 16Mi` or `more than
//! 0s`.

use serde_json::Value;

use super::units::{parse_bytes, parse_duration};

/// A range of numbers, durations or sizes.
#[derive(Debug)]
pub(in crate::config) struct Range {
    pub(in crate::config) text: String,
    least: u128,
    most: u128,
}

impl Range {
    /// Parses a range.
    ///
    /// # Panics
    ///
    /// If the text has another form. Ranges are part of the sources.
    pub(in crate::config) fn parse(text: &str) -> Self {
        let bound = |text: &str| measure(text).expect("a number, a duration or a size");
        let (least, most) = match text.split_once(' ') {
            Some(("from", bounds)) => {
                let (least, most) = bounds.split_once(" to ").expect("two bounds");
                (bound(least), bound(most))
            }
            Some(("at", least)) => (bound(least.trim_start_matches("least ")), u128::MAX),
            Some(("more", less)) => (bound(less.trim_start_matches("than ")) + 1, u128::MAX),
            _ => panic!("{text:?} is not a range"),
        };
        Self {
            text: text.to_owned(),
            least,
            most,
        }
    }

    /// Returns true if the range contains the value, which is a number or a text.
    pub(in crate::config) fn contains(&self, value: &Value) -> bool {
        let measured = match value {
            Value::String(text) => measure(text),
            number => measure(&number.to_string()),
        };
        measured.is_some_and(|measured| (self.least..=self.most).contains(&measured))
    }
}

/// Returns a duration in nanoseconds, and a size or another number as it is.
fn measure(text: &str) -> Option<u128> {
    match parse_duration(text) {
        Ok(duration) => Some(duration.as_nanos()),
        Err(_) => parse_bytes(text).ok().map(|bytes| bytes as u128),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_contain_their_bounds() {
        for (range, inside, outside) in [
            ("from 1s to 24d", ["1s", "24days"], ["999ms", "25d"]),
            ("from 8Ki to 16Mi", ["8192", "16Mi"], ["8191", "17Mi"]),
            ("from 0 to 2", ["0", "2"], ["3", "300"]),
        ] {
            let range = Range::parse(range);
            assert!(inside.iter().all(|text| range.contains(&json!(text))));
            assert!(!outside.iter().any(|text| range.contains(&json!(text))));
        }
        let positive = Range::parse("more than 0s");
        assert!(positive.contains(&json!("1ns")) && !positive.contains(&json!("0s")));
        let large = Range::parse("at least 16Mi");
        assert!(large.contains(&json!(16 << 20)) && !large.contains(&json!((16 << 20) - 1)));
        assert!(!large.contains(&json!(true)));
    }
}
