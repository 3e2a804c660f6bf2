//! Texts for a terminal: foreign text that can't harm it, numbers with units, ages, widths.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What is shown in place of a character that can't be shown.
const REPLACEMENT: char = '\u{fffd}';
/// What is shown for a value that is not known.
pub(crate) const UNKNOWN: &str = "-";
/// The last character of a text that was cut.
const CUT: char = '…';

// === Foreign text ===

/// Returns `text` with each character replaced that could do more than show itself: control and
/// escape characters, which a terminal would obey, marks that change the direction or join letters,
/// line separators, and what has no width of its own.
///
/// Names of users, programs, selectors and errors pass through this function before they reach a
/// terminal. Clients choose them.
pub(crate) fn harmless(text: &str) -> String {
    let shown = |c| if is_harmless(c) { c } else { REPLACEMENT };
    text.chars().map(shown).collect()
}

fn is_harmless(c: char) -> bool {
    // Some tables give a width to the soft hyphen and the separators.
    let is_special = matches!(c, '\u{ad}' | '\u{2028}' | '\u{2029}');
    !c.is_control() && !is_special && c.width().is_some_and(|width| width > 0)
}

// === Widths ===

/// Returns the number of columns that `text` takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns the start of `text` that takes at most `most` columns. Its last character is `…` if
/// something is missing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += c.width().unwrap_or_default();
        if taken > most {
            break;
        }
        cut.push(c);
    }
    if most > 0 {
        cut.push(CUT);
    }
    cut
}

/// Returns `text` in lines of at most `most` columns, broken at spaces where possible.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let most = most.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if !line.is_empty() && width(&line) + width(word.trim_end()) > most {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        for c in word.chars() {
            if width(&line) + c.width().unwrap_or_default() > most && c != ' ' {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

// === Numbers ===

/// Returns a count with at most four digits, and a letter if it is large: `9999`, `12k`, `4.0M`.
pub(crate) fn count(count: f64) -> String {
    if count < 9_999.5 {
        return format!("{count:.0}");
    }
    scaled(count, 1_000.0, &["", "k", "M", "G", "T", "P"])
}

/// Returns bytes with a unit, such as `512 B`, `1.5 KiB`, `312 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    scaled(bytes, 1_024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Returns a number per second, such as `0.3/s` or `12k/s`.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}/s");
    }
    format!("{}/s", count(per_second))
}

/// Returns the share `part` of `all`, such as `97%`; [`UNKNOWN`] if `all` is 0. Only all of them are
/// 100%.
pub(crate) fn percent(part: f64, all: f64) -> String {
    if all <= 0.0 {
        return UNKNOWN.to_owned();
    }
    format!("{}%", (part * 100.0 / all).floor())
}

/// Returns seconds of CPU time, such as `0.13s` or `312s`.
pub(crate) fn cpu(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.2}s");
    }
    format!("{}s", count(seconds))
}

/// Divides `number` by `step` until it is small. Below 10 it has a decimal place, unless it is one
/// of the first unit.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut scaled = number;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    let mut is_first = true;
    // What would be rounded to `step` has the next unit.
    while scaled >= step - 0.5 {
        let Some(next) = units.next() else { break };
        scaled /= step;
        unit = next;
        is_first = false;
    }
    if scaled < 9.95 && !is_first {
        return format!("{scaled:.1}{unit}");
    }
    format!("{scaled:.0}{unit}")
}

// === Ages ===

/// Returns an age as kubectl shows it: `90s`, `5m30s`, `9h`, `2d4h`, `2y20d`.
pub(crate) fn age(seconds: f64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    // A negative or absurd number becomes 0 or the largest age.
    let seconds = seconds as u64;
    let two = |first: u64, first_name: &str, second: u64, second_name: &str| {
        let rest = seconds % first / second;
        match rest {
            0 => format!("{}{first_name}", seconds / first),
            _ => format!("{}{first_name}{rest}{second_name}", seconds / first),
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        _ => two(YEAR, "y", DAY, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        for (text, expected) in [
            ("kubectl/v1.37 (linux/amd64)", "kubectl/v1.37 (linux/amd64)"),
            ("jürgen 王", "jürgen 王"),
            ("a\x1b[2Jb", "a\u{fffd}[2Jb"),
            ("a\x1b]0;title\x07b", "a\u{fffd}]0;title\u{fffd}b"),
            // C1: a CSI in one character.
            ("a\u{9b}31mb", "a\u{fffd}31mb"),
            (
                "a\r\n\tb\0\x7f",
                "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}",
            ),
            // Directions: override, isolate, marks.
            ("a\u{202e}b\u{202c}", "a\u{fffd}b\u{fffd}"),
            ("a\u{2066}b\u{2069}", "a\u{fffd}b\u{fffd}"),
            ("\u{200e}\u{200f}\u{61c}", "\u{fffd}\u{fffd}\u{fffd}"),
            // Invisible: zero width, byte order mark, soft hyphen, tags.
            (
                "a\u{200b}\u{200d}\u{feff}\u{ad}\u{e0041}",
                "a\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            ("a\u{2028}b\u{2029}", "a\u{fffd}b\u{fffd}"),
            ("a\u{301}\u{fe0f}", "a\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(harmless(text), expected, "{text:?}");
        }
    }

    #[test]
    fn texts_are_cut_at_columns() {
        for (text, most, expected) in [
            ("kubectl", 7, "kubectl"),
            ("kubectl", 6, "kubec…"),
            ("kubectl", 1, "…"),
            ("kubectl", 0, ""),
            ("王王王", 6, "王王王"),
            ("王王王", 5, "王王…"),
            ("王王王", 4, "王…"),
            ("", 0, ""),
        ] {
            let found = cut(text, most);
            assert_eq!(found, expected, "{text} {most}");
            assert!(width(&found) <= most);
        }
    }

    #[test]
    fn texts_are_wrapped_at_spaces() {
        for (text, expected) in [
            ("", &[""][..]),
            ("a b c", &["a b c"]),
            ("one two three", &["one two", "three"]),
            ("one twothreefour", &["one", "twothree", "four"]),
            ("abcdefgh", &["abcdefgh"]),
            ("王王王王王", &["王王王王", "王"]),
        ] {
            assert_eq!(wrap(text, 8), expected, "{text}");
        }
    }

    #[test]
    fn numbers_have_units() {
        for (value, expected) in [
            (0.0, "0"),
            (9_999.0, "9999"),
            (10_000.0, "10k"),
            (12_345.0, "12k"),
            (999_600.0, "1.0M"),
            (4_000_000.0, "4.0M"),
        ] {
            assert_eq!(count(value), expected);
        }
        for (value, expected) in [
            (0.0, "0 B"),
            (1_023.0, "1023 B"),
            (1_024.0, "1.0 KiB"),
            (1_536.0, "1.5 KiB"),
            (327_155_712.0, "312 MiB"),
            (1_073_741_823.0, "1.0 GiB"),
            (2_147_483_648.0, "2.0 GiB"),
            (9e18, "8185452 TiB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        for (value, expected) in [
            (0.04, "0.0/s"),
            (9.94, "9.9/s"),
            (12.0, "12/s"),
            (2e4, "20k/s"),
        ] {
            assert_eq!(rate(value), expected);
        }
        for (part, all, expected) in [(0.0, 0.0, "-"), (999.0, 1_000.0, "99%"), (3.0, 3.0, "100%")]
        {
            assert_eq!(percent(part, all), expected);
        }
        assert_eq!(
            (cpu(0.128), cpu(312.4)),
            ("0.13s".to_owned(), "312s".to_owned())
        );
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, expected) in [
            (-1.0, "0s"),
            (119.9, "119s"),
            (120.0, "2m"),
            (330.0, "5m30s"),
            (600.0, "10m"),
            (10_799.0, "179m"),
            (10_860.0, "3h1m"),
            (28_800.0, "8h"),
            (187_200.0, "2d4h"),
            (691_200.0, "8d"),
            (63_072_000.0, "2y"),
            (63_158_400.0, "2y1d"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }
}
