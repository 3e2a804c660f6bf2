//! Masks everything in a command's output that differs between two correct runs: times, ages, uids,
//! resourceVersions, and names that the caller lists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Masks times, ages, uids and resourceVersions in `text`. Each pair of `names` is a text and its
/// replacement.
pub(crate) fn normalise(text: &str, names: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (name, replacement) in names {
        text = text.replace(name, replacement);
    }
    let kept = text.lines().filter(|line| !is_diff_header(line));
    kept.map(line).collect::<Vec<_>>().join("\n")
}

/// Returns true for the lines of `diff` with the names of its temporary files.
fn is_diff_header(line: &str) -> bool {
    ["diff -", "--- /", "+++ /"]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Masks only the ages (`7s`, `3m12s`) in `text`.
pub(crate) fn mask_ages(text: &str) -> String {
    parts(text)
        .map(|part| if is_age(part) { "AGE" } else { part })
        .collect()
}

fn line(line: &str) -> String {
    let line = without_token_version(&without_long_date(line));
    let mut result = String::new();
    let mut after_version = false;
    for part in parts(&line) {
        if !is_word(part) {
            // Wide gaps are shortened: a column is as wide as its widest cell, which may be an age.
            let narrow = part.trim_start_matches(' ');
            after_version &= part.chars().all(|c| " \"'".contains(c));
            result.push_str(&part[..(part.len() - narrow.len()).min(2)]);
            result.push_str(narrow);
            continue;
        }
        result.push_str(match part {
            _ if after_version && is_number(part) => "VERSION",
            _ if is_uid(part) => "UID",
            _ if is_time(part) => "TIME",
            _ if is_age(part) => "AGE",
            _ => part,
        });
        after_version = part.starts_with("resourceVersion")
            || part == "Version:"
            || (after_version && part == ":");
    }
    result.trim_end().to_owned()
}

/// Replaces a continue token by its start key, because it contains a resourceVersion.
fn without_token_version(line: &str) -> String {
    // The base64 encoding of `{"v":"`; every token begins with it.
    let Some(from) = line.find("eyJ2Ijoi") else {
        return line.to_owned();
    };
    let is_over = |c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c));
    let rest = &line[from..];
    let to = from + rest.find(is_over).unwrap_or(rest.len());
    let token = URL_SAFE_NO_PAD.decode(&line[from..to]).unwrap_or_default();
    let token: Value = serde_json::from_slice(&token).unwrap_or_default();
    format!("{}TOKEN {}{}", &line[..from], token["start"], &line[to..])
}

/// Masks a time as `kubectl describe` prints it: `Sat, 21 Nov 2026 20:16:09 +0000`.
fn without_long_date(line: &str) -> String {
    const LENGTH: usize = "Sat, 21 Nov 2026 20:16:09 +0000".len();
    match line.find(" +0000").map(|at| at + " +0000".len()) {
        Some(end) if end >= LENGTH && line.is_char_boundary(end - LENGTH) => {
            format!("{}TIME{}", &line[..end - LENGTH], &line[end..])
        }
        _ => line.to_owned(),
    }
}

/// Splits a line into words and the text between them, alternating.
fn parts(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest
            .find(|c| is_word_char(c) != is_word_char(first))
            .unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-:.+".contains(c)
}

fn is_word(part: &str) -> bool {
    part.starts_with(is_word_char)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uid(word: &str) -> bool {
    let lengths: Vec<usize> = word.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && word.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Returns true for a time like `2026-11-21T20:16:09Z`, with or without fractions of a second.
fn is_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && word.ends_with('Z')
}

/// Returns true for an age like `7s`, `3m12s` or `2d`.
fn is_age(word: &str) -> bool {
    let mut digits = false;
    let well_formed = word.bytes().all(|byte| match byte {
        b'0'..=b'9' => {
            digits = true;
            true
        }
        b's' | b'm' | b'h' | b'd' => std::mem::take(&mut digits),
        _ => false,
    });
    well_formed && !digits && !word.is_empty()
}

#[test]
fn unavoidable_differences_are_masked() {
    for (before, after) in [
        (
            r#""continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjM1Nywic3RhcnQiOiIvZmlyc3RcdTAwMDAifQ"}"#,
            r#""continue":"TOKEN "/first\u0000""}"#,
        ),
        (
            "web  1/1   Running   0          12s",
            "web  1/1  Running  0  AGE",
        ),
        (
            "web  1/1   Running   0          3m5s  <none>",
            "web  1/1  Running  0  AGE  <none>",
        ),
        (
            r#"{"resourceVersion":"417","n":417}"#,
            r#"{"resourceVersion":"VERSION","n":417}"#,
        ),
        ("  resourceVersion: \"9\"", "  resourceVersion: \"VERSION\""),
        ("  uid: 5b4b3ad0-38a3-4a39-9eb8-2a0dd8be4d54", "  uid: UID"),
        (
            "creationTimestamp: \"2026-11-21T20:16:09Z\"",
            "creationTimestamp: \"TIME\"",
        ),
        (
            "Start Time:  Sat, 21 Nov 2026 20:16:09 +0000",
            "Start Time:  TIME",
        ),
        ("pod/web in ns-x7 patched", "pod/web in NS patched"),
        ("  Resource Version:  218", "  Resource Version:  VERSION"),
        ("replicas: 3", "replicas: 3"),
    ] {
        assert_eq!(normalise(before, &[("ns-x7", "NS")]), after);
    }
}
