//! Texts as lines of the screen.

use crate::text;

/// What the keys do, for the screen of help.
pub(super) const HELP: [&str; 21] = [
    "1 2 3 4        caches, clients, requests, advice",
    "Tab, arrows    the next view, the one before",
    "up, down       select a row; PgUp, PgDn, Home, End move further",
    "Enter          all that is known of the selected row",
    "s              sort by the next column",
    "S              reverse the order",
    "/              show only rows with a text; Esc shows all again",
    "p, space       pause: the screen stays as it is",
    "q, Ctrl-C      quit",
    "",
    "caches     LOG is the event log, CHANGED the time since the last change",
    "clients    HELD is memory for the connection, UNREAD the part that waits for",
    "           the client to read it, BEHIND events of its slowest watch, REQUESTS",
    "           those in progress",
    "requests   the last minute of each client; SAVED is an estimate of the CPU time",
    "           that the API server was saved since the client is known; ERRORS are",
    "           answers with 401, 403, 410 or 429, and those broken off",
    "advice     what clients do that costs much, and what to do about it",
    "",
    "Without the right to get /admin/v1/users, numbers are shown for users.",
    "Any key goes back.",
];

/// Returns details as lines of at most `width` columns: the names in one column, the values in
/// another one.
pub(super) fn detail_lines(details: &[(&str, String)], width: usize) -> Vec<String> {
    let names = details.iter().map(|(name, _)| text::width(name));
    let names = names.max().unwrap_or_default().min(width / 2);
    let mut lines = Vec::new();
    for (name, value) in details {
        let mut name = text::cut(name, names);
        for part in text::wrap(value, width.saturating_sub(names + 2)) {
            let padding = " ".repeat(names + 2 - text::width(&name));
            lines.push(format!("{name}{padding}{part}"));
            name.clear();
        }
    }
    lines
}

/// Returns `text` with spaces up to `width`, before it or after it, or cut.
pub(super) fn fitted(text: &str, width: usize, is_right: bool) -> String {
    let cut = text::cut(text, width);
    let spaces = " ".repeat(width.saturating_sub(text::width(&cut)));
    match is_right {
        true => spaces + &cut,
        false => cut + &spaces,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_wrapped_beside_their_names() {
        let details = vec![
            ("user", "jane".to_owned()),
            ("what to do", "use a watch, or another policy".to_owned()),
            ("empty", String::new()),
        ];
        let expected = [
            "user        jane",
            "what to do  use a watch, or",
            "            another policy",
            "empty       ",
        ];
        assert_eq!(detail_lines(&details, 30), expected);
        assert!(detail_lines(&details, 0).iter().all(|line| line.len() < 10));
    }

    #[test]
    fn cells_fit_their_columns() {
        for (cell, width, is_right, expected) in [
            ("pods", 6, false, "pods  "),
            ("12k", 6, true, "   12k"),
            ("configmaps", 6, false, "confi…"),
            ("\u{738b}\u{738b}", 5, false, "\u{738b}\u{738b} "),
            ("\u{738b}\u{738b}", 3, true, "\u{738b}…"),
        ] {
            assert_eq!(fitted(cell, width, is_right), expected);
        }
    }

    #[test]
    fn the_help_fits_an_old_terminal() {
        assert!(HELP.len() <= 22);
        assert!(HELP.iter().all(|line| line.len() <= 80));
    }
}
