//! Checks that comments are written in plain English.

use std::path::Path;

use crate::repository::{read, root, rust_files};

/// Words that made comments hard to read. There is a plainer word for each of them.
const BANNED: [&str; 13] = [
    "tell",
    "tells",
    "told",
    "stand",
    "stands",
    "who",
    "whoever",
    "nobody",
    "somebody",
    "everybody",
    "so many",
    "so long",
    "so much",
];
/// The allowed share of comment lines with banned words, in lines per thousand.
const MOST_PER_THOUSAND: usize = 3;
/// The number of offending lines that a failure shows.
const SHOWN: usize = 20;

#[test]
fn comments_use_plain_words() {
    let mut count = 0;
    let mut offenders = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "fuzz"] {
        for file in rust_files(&root().join(folder)) {
            let name = file.strip_prefix(root()).expect("a file below the root");
            if is_build_output(name) {
                continue;
            }
            for (index, line) in read(&file).lines().enumerate() {
                let Some(comment) = line.trim_start().strip_prefix("//") else {
                    continue;
                };
                count += 1;
                if has_banned_word(comment) {
                    offenders.push(format!("{}:{}: {}", name.display(), index + 1, line.trim()));
                }
            }
        }
    }
    assert!(
        offenders.len() * 1_000 <= count * MOST_PER_THOUSAND,
        "{} of {count} comment lines have banned words, more than {MOST_PER_THOUSAND} per thousand; the first are:\n{}",
        offenders.len(),
        offenders[..offenders.len().min(SHOWN)].join("\n")
    );
}

/// Returns true for files that cargo generated, in the target folder of a separate workspace.
fn is_build_output(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "target")
}

/// Returns true if a comment contains a banned word, not only as a part of a longer
/// word, in upper or lower case.
fn has_banned_word(comment: &str) -> bool {
    let blank = |c: char| match c.is_alphanumeric() || c == '_' {
        true => c,
        false => ' ',
    };
    let words: String = comment.to_lowercase().chars().map(blank).collect();
    let words = format!(" {words} ");
    BANNED
        .iter()
        .any(|banned| words.contains(&format!(" {banned} ")))
}

#[test]
fn banned_words_are_found_as_whole_words() {
    for (comment, is_banned) in [
        ("/ Who asks", true),
        (" a client that is told.", true),
        ("! it lasts so long", true),
        (" nobody's", true),
        (" a whole standard, foretold", false),
        (" `is_told` and whoever_2", false),
        (" so, much", false),
        ("", false),
    ] {
        assert_eq!(has_banned_word(comment), is_banned, "{comment:?}");
    }
    assert!(is_build_output(Path::new("fuzz/target/debug/out.rs")));
    assert!(!is_build_output(Path::new("src/target.rs")));
}
