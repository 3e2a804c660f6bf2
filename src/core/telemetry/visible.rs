//! Foreign text for a log or a terminal: no character of it does more than show itself.

use std::borrow::Cow;

/// Returns `text` with escapes such as `\u{1b}` in place of the characters that a terminal would
/// obey, that change how others look, or that can't be seen. Line breaks are such characters.
///
/// Clients choose names of users, programs and objects. The audit log, the access log,
/// `kubefan why` and `kubefan top --json` show them with this function or with [`visible_json`].
pub fn visible(text: &str) -> Cow<'_, str> {
    let escape = |shown: &mut String, c: char| shown.extend(c.escape_unicode());
    replaced(text, is_visible, escape)
}

/// Returns JSON with the characters of [`visible`] escaped as JSON does it. They occur in strings
/// only, so the value is the same. Line breaks stay, because JSON has none in its strings.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    let stays = |c| c == '\n' || is_visible(c);
    replaced(text, stays, |shown, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

/// Returns `text` with each character for which `stays` returns false written by `escape`.
fn replaced(
    text: &str,
    stays: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(2 * text.len());
    for c in text.chars() {
        match stays(c) {
            true => shown.push(c),
            false => escape(&mut shown, c),
        }
    }
    Cow::Owned(shown)
}

fn is_visible(c: char) -> bool {
    match c.is_ascii() {
        true => !c.is_ascii_control(),
        // `Debug` escapes what is not printable, and marks that join the character before them.
        false => c.escape_debug().len() == 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        for (text, expected) in [
            ("kubectl/v1.37 \"a\" \\ 'b'", "kubectl/v1.37 \"a\" \\ 'b'"),
            ("j\u{fc}rgen \u{738b}", "j\u{fc}rgen \u{738b}"),
            ("a\x1b[2Jb\x07", "a\\u{1b}[2Jb\\u{7}"),
            ("a\r\n\0\x7f", "a\\u{d}\\u{a}\\u{0}\\u{7f}"),
            // C1: a CSI in one character.
            ("a\u{9b}31m", "a\\u{9b}31m"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("\u{200b}\u{feff}\u{ad}", "\\u{200b}\\u{feff}\\u{ad}"),
            ("\u{2028}e\u{301}", "\\u{2028}e\\u{301}"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({
            "a": "\x1b[2J\u{9b}\u{202e}\u{e0041} \u{e4} \u{738b} \" \\ \x7f\n", "b": [1, 2.5, null],
        });
        let line = format!("{value}\n");
        let shown = visible_json(&line);
        assert_eq!(visible(shown.trim_end()), shown.trim_end());
        assert!(shown.contains("\u{e4} \u{738b}"), "{shown}");
        let read: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(read, value);
        assert!(matches!(visible_json("{\"a\":1}\n"), Cow::Borrowed(_)));
    }
}
