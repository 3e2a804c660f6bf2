//! How one number compares with another, in words.

/// Formats the comparison of `first` with `second`: `12x less`, `1.3x more`, `the same`; `-` if one
/// of them is 0 or not a number.
pub fn times(first: f64, second: f64) -> String {
    let is_positive = |number: f64| number.is_finite() && number > 0.0;
    if !is_positive(first) || !is_positive(second) {
        return "-".to_owned();
    }
    let (factor, word) = if first < second {
        (second / first, "less")
    } else {
        (first / second, "more")
    };
    match factor {
        ..1.05 => "the same".to_owned(),
        ..9.95 => format!("{factor:.1}x {word}"),
        _ => format!("{factor:.0}x {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_in_words() {
        for (first, second, expected) in [
            (1.0, 12.4, "12x less"),
            (0.08, 1.0, "12x less"),
            (1.3, 1.0, "1.3x more"),
            (2.0, 1.0, "2.0x more"),
            (1.02, 1.0, "the same"),
            (1.0, 1.02, "the same"),
            (1.0, 9.96, "10x less"),
            (0.0, 1.0, "-"),
            (1.0, 0.0, "-"),
            (f64::NAN, 1.0, "-"),
        ] {
            assert_eq!(times(first, second), expected, "{first} {second}");
        }
    }
}
