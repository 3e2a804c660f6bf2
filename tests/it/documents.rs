//! Checks the Markdown documents: links, the book, source paths,
//! invariants, the rooms table, lengths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::layering::CRATES;
use crate::repository::{document, read, root, rust_files};

/// All Markdown documents of the repository, as paths from its root.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches/RESULTS.md",
    "deploy/README.md",
    "deploy/helm/kubefan/README.md",
    "docs/README.md",
    "docs/SUMMARY.md",
    "docs/access.md",
    "docs/admin-api.md",
    "docs/bill.md",
    "docs/caching.md",
    "docs/client-go-cases.md",
    "docs/clients.md",
    "docs/from-client-go.md",
    "docs/from-kube-runtime.md",
    "docs/how-it-works/fan-out.md",
    "docs/how-it-works/freshness.md",
    "docs/how-it-works/identity.md",
    "docs/how-it-works/recovery.md",
    "docs/how-it-works/tables.md",
    "docs/how-it-works.md",
    "docs/library.md",
    "docs/limits-and-recovery.md",
    "docs/limits.md",
    "docs/operating.md",
    "docs/questions.md",
    "docs/reasons.md",
    "docs/runbooks.md",
    "docs/settings.md",
    "docs/sizing.md",
    "docs/tables.md",
    "docs/tools.md",
    "docs/troubleshooting.md",
    "docs/versions.md",
    "src/library/README.md",
    "tests/differential/README.md",
    "tests/golden/codec/README.md",
    "tests/node/README.md",
    "tests/upstream/README.md",
];
/// Where a page of the book links to a file outside of `docs`: a
/// relative link would leave the book.
pub(crate) const AT_GITHUB: &str = "https://github.com/kubefan/kubefan/blob/main/";
/// A word in backticks that starts with one of these is a path from the repository's root.
const SOURCE_FOLDERS: [&str; 7] = [
    "src/",
    "tests/",
    "config/",
    "deploy/",
    "benches/",
    "examples/",
    "fuzz/",
];
/// The longest line outside tables and code blocks, in characters.
const MAX_LINE: usize = 120;
/// README.md is read in three minutes, ARCHITECTURE.md before the first change.
const MAX_README_LINES: usize = 150;
const MAX_ARCHITECTURE_WORDS: usize = 5_000;

#[test]
fn every_document_is_listed() {
    let found = markdown_files(root());
    let found: Vec<_> = found
        .iter()
        .map(|path| path.strip_prefix(root()).expect("a file below the root"))
        .collect();
    let listed: Vec<_> = DOCUMENTS.iter().map(Path::new).collect();
    assert_eq!(found, listed, "Markdown files (left) and DOCUMENTS differ");
}

/// The tables of these pages name tests in their second columns, such as `net::tests::limits::x`.
/// The last part of the name must be a function or a module of the sources.
#[test]
fn the_tests_of_the_tables_exist() {
    let sources: String = ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .map(|path| read(&path))
        .collect();
    for (page, least) in [
        ("docs/limits-and-recovery.md", 40),
        ("docs/client-go-cases.md", 50),
    ] {
        let text = document(page);
        let rows = text
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1))
            .filter(|tests| tests.contains('`'));
        let mut count = 0;
        for name in rows.flat_map(code_words) {
            let last = name.rsplit("::").next().unwrap_or_default();
            let exists = ["fn ", "mod "]
                .iter()
                .any(|keyword| sources.contains(&format!("{keyword}{last}")));
            let is_path = name.contains('/') && root().join(&name).exists();
            assert!(exists || is_path, "{page}: there is no test {name}");
            count += 1;
        }
        assert!(count > least, "{page}: only {count} tests were found");
    }
}

/// The page has a row for each reason, with its documentation from the source.
#[test]
fn the_page_of_the_reasons_says_what_the_source_says() {
    let source = read(&root().join("src/proxy/server/decide/reason.rs"));
    let variants = source.split_once("pub enum Reason {").expect("the enum").1;
    let (variants, names) = variants.split_once("\n}\n").expect("its end");
    let mut expected = Vec::new();
    let mut documentation = Vec::new();
    for line in variants.lines().map(str::trim) {
        match (line.strip_prefix("///"), line.strip_suffix(',')) {
            (Some(text), _) => documentation.push(text.trim()),
            (None, Some(variant)) => {
                let label = format!("Self::{variant} => \"");
                let label = names.split_once(&label).expect(variant).1;
                let label = label.split('"').next().expect("a name");
                let meaning = documentation.join(" ");
                expected.push(format!("| `{label}` | {} |", meaning.trim_end_matches('.')));
                documentation.clear();
            }
            (None, None) => {}
        }
    }
    assert!(expected.len() > 20, "the reasons are found in the source");
    let page = document("docs/reasons.md");
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(expected) {
        let todo = row.strip_prefix(&expected);
        let todo = todo.unwrap_or_else(|| panic!("{row}\nshould begin with\n{expected}"));
        assert!(todo.trim().len() > 5, "{row}");
    }
}

/// The book has every page of `docs`. The first line of a page names its readers.
#[test]
fn the_book_has_every_page() {
    let summary = links_in(&document("docs/SUMMARY.md"));
    let listed: BTreeSet<_> = summary.iter().map(|page| format!("docs/{page}")).collect();
    let pages = DOCUMENTS.iter().filter(|name| is_page(name));
    let pages: BTreeSet<_> = pages.map(|name| (*name).to_owned()).collect();
    assert_eq!(listed, pages, "SUMMARY.md (left) and the pages differ");
    for page in pages {
        let text = document(&page);
        let first = text
            .lines()
            .find(|line| !line.is_empty() && !line.starts_with('#'));
        let first = first.unwrap_or_default();
        assert!(first.starts_with("For "), "{page} begins with: {first}");
    }
}

#[test]
fn the_first_documents_are_short() {
    let lines = document("README.md").lines().count();
    assert!(lines <= MAX_README_LINES, "README.md: {lines} lines");
    let words = document("ARCHITECTURE.md").split_whitespace().count();
    assert!(
        words <= MAX_ARCHITECTURE_WORDS,
        "ARCHITECTURE.md: {words} words"
    );
}

#[test]
fn every_local_link_leads_somewhere() {
    for name in DOCUMENTS {
        let own = root().join(name);
        let folder = own.parent().expect("a document is in a folder");
        for link in links_in(&document(name)) {
            let at_github = link.strip_prefix(AT_GITHUB);
            if at_github.is_none() && link.contains("://") {
                continue;
            }
            let local = at_github.unwrap_or(&link);
            let (path, anchor) = local.split_once('#').unwrap_or((local, ""));
            let target = match at_github {
                Some(_) => root().join(path),
                None if path.is_empty() => own.clone(),
                None => folder.join(path),
            };
            assert!(target.exists(), "{name}: {link} leads nowhere");
            let is_in_book = is_inside(&target, &root().join("docs"));
            assert!(
                !is_page(name) || is_in_book == at_github.is_none(),
                "{name}: {link}: pages link to each other by paths, and to other files at {AT_GITHUB}"
            );
            if !anchor.is_empty() {
                let anchors = anchors_in(&read(&target));
                assert!(anchors.contains(anchor), "{name}: {link}, no such heading");
            }
        }
    }
}

#[test]
fn every_named_source_path_exists() {
    for name in DOCUMENTS {
        for word in code_words(&document(name)) {
            let is_path = SOURCE_FOLDERS.iter().any(|folder| word.starts_with(folder));
            let is_there = root().join(&word).exists();
            assert!(
                !is_path || is_there,
                "{name} names {word}, which does not exist"
            );
        }
    }
}

#[test]
fn lines_of_documents_are_short() {
    for name in DOCUMENTS {
        let long = long_lines(&document(name));
        assert!(
            long.is_empty(),
            "{name}: lines {long:?} have more than {MAX_LINE} characters"
        );
    }
}

#[test]
fn every_invariant_has_its_test() {
    let named: BTreeSet<_> = code_words(&document("ARCHITECTURE.md"))
        .into_iter()
        .filter(|word| is_invariant(word))
        .collect();
    for number in 1..=7 {
        let prefix = format!("i{number}_");
        let is_named = named.iter().any(|name| name.starts_with(&prefix));
        assert!(is_named, "ARCHITECTURE.md names no test for I{number}");
    }
    let mut sources = String::new();
    for folder in ["src", "tests/it"] {
        for file in rust_files(&root().join(folder)) {
            sources.push_str(&read(&file));
        }
    }
    for test in named {
        let declaration = format!("fn {test}(");
        assert!(sources.contains(&declaration), "no test is called {test}");
    }
}

#[test]
fn the_rooms_table_has_the_rooms_of_each_crate() {
    let architecture = document("ARCHITECTURE.md");
    let rows = architecture
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| row.split_once("` | "));
    let rows: Vec<_> = rows
        .map(|(room, rest)| (rest.split(" | ").next().unwrap_or_default(), room))
        .collect();
    let rooms = CRATES
        .iter()
        .flat_map(|(name, rooms)| rooms.iter().map(move |room| (*name, *room)));
    let expected: Vec<_> = rooms.chain([("program", "commands")]).collect();
    assert_eq!(rows, expected, "ARCHITECTURE.md (left) and CRATES differ");
}

/// Returns true for a page of the book.
fn is_page(name: &str) -> bool {
    name.starts_with("docs/") && name != "docs/SUMMARY.md"
}

/// Returns true if a file that exists is below a folder.
fn is_inside(file: &Path, folder: &Path) -> bool {
    let [file, folder] = [file, folder].map(|path| path.canonicalize().expect("an existing path"));
    file.starts_with(folder)
}

/// Finds all Markdown files below a folder, sorted, without build outputs and git's own files.
pub(crate) fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| !path.ends_with("target") && !path.ends_with(".git"))
        .flat_map(|path| match path.is_dir() {
            true => markdown_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    files.sort();
    files
}

/// Returns the numbers of the lines outside tables and fenced blocks
/// that are longer than `MAX_LINE`.
fn long_lines(markdown: &str) -> Vec<usize> {
    let mut in_block = false;
    let mut long = Vec::new();
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && !line.starts_with('|') && line.chars().count() > MAX_LINE {
            long.push(index + 1);
        }
    }
    long
}

/// Returns true if a word looks like `i1_log_tip_is_store_version`,
/// the name of an invariant's test.
fn is_invariant(word: &str) -> bool {
    let Some((number, _)) = word.strip_prefix('i').and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

/// Finds the targets of all links `[text](target)`.
fn links_in(markdown: &str) -> Vec<String> {
    markdown
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// Finds the texts between backticks, outside fenced blocks.
pub(crate) fn code_words(markdown: &str) -> Vec<String> {
    let mut in_block = false;
    let mut words = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            words.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    words
}

/// Returns the anchors of the headings, as GitHub generates them.
fn anchors_in(markdown: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| -> String {
        heading
            .to_lowercase()
            .replace(' ', "-")
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
            .collect()
    };
    markdown
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn markdown_is_parsed_as_the_tests_need() {
    let markdown =
        "# A b, `c`!\n[x](y.md#z) and [u](https://v)\n`one` two `three`\n```\n`no`\n```\n";
    assert_eq!(links_in(markdown), ["y.md#z", "https://v"]);
    assert_eq!(code_words(markdown), ["c", "one", "three"]);
    assert_eq!(anchors_in(markdown), BTreeSet::from(["a-b-c".to_owned()]));
    let long = "x".repeat(MAX_LINE + 1);
    let lines = format!("{long}\n|{long}|\n```\n{long}\n```\n{}\n{long}", &long[1..]);
    assert_eq!(long_lines(&lines), [1, 7]);
    assert!(is_invariant("i1_log_tip"));
    assert!(!is_invariant("is_ready") && !is_invariant("i_1"));
}
