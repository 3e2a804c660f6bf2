//! Words and numbers of evidence.

use std::time::Duration;

use crate::bill::table::{OperationName, SelectorClass};

/// Returns the objects of an operation in words, such as `all pods` or `pods by labels`.
pub(super) fn objects(operation: &OperationName) -> String {
    let resource = match operation.resource.as_str() {
        "" => "documents".to_owned(),
        _ => operation.group_resource(),
    };
    match operation.selector {
        SelectorClass::Shard => format!("a shard of {resource}"),
        SelectorClass::Unindexed => format!("{resource} by conditions without an index"),
        SelectorClass::Name => format!("single {resource}"),
        SelectorClass::Field => format!("{resource} by a field"),
        SelectorClass::Label => format!("{resource} by labels"),
        SelectorClass::Namespace => format!("all {resource} of a namespace"),
        SelectorClass::None => format!("all {resource}"),
    }
}

/// Returns a number with a separator after each three digits, such as `1,500,000`.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns bytes with a unit, such as `3.4 MB`.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Returns a duration in whole seconds, or in minutes if it is long.
pub(super) fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (25_000, "25,000"),
            (1_500_000, "1,500,000"),
        ] {
            assert_eq!(number(value), expected);
        }
        for (value, expected) in [
            (999, "999 bytes"),
            (1_500, "1.5 kB"),
            (3_400_000, "3.4 MB"),
            (2_000_000_000, "2.0 GB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        for (seconds, expected) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (299, "4 min")] {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }
}
