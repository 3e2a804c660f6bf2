//! Numbers as texts for people.

/// Returns a number with a separator after each three digits, such as `1,500,000`.
pub fn number(number: u64) -> String {
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

/// Returns bytes with a decimal unit, such as `3.4 MB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (25_000, "25,000"),
            (1_500_000, "1,500,000"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn bytes_have_units() {
        for (value, expected) in [
            (999, "999 bytes"),
            (1_500, "1.5 kB"),
            (3_400_000, "3.4 MB"),
            (2_000_000_000, "2.0 GB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
    }
}
