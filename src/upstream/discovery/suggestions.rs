//! Names that are close to a mistyped one.

use std::collections::BTreeMap;

/// Suggestions given at most.
const SUGGESTIONS: usize = 3;

/// Of pairs (spelling, suggestion): the suggestions whose spelling is closest to `name`, the
/// closest first. Nothing that differs in more than a third of its letters.
pub(crate) fn closest(name: &str, pairs: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let tolerated = (name.chars().count() / 3).max(1);
    let mut distances: BTreeMap<String, usize> = BTreeMap::new();
    for (spelling, suggestion) in pairs {
        let distance = edits(name, &spelling);
        if distance <= tolerated {
            let known = distances.entry(suggestion).or_insert(distance);
            *known = distance.min(*known);
        }
    }
    let mut found: Vec<_> = distances.into_iter().collect();
    found.sort_by_key(|(_, distance)| *distance);
    found.truncate(SUGGESTIONS);
    found
        .into_iter()
        .map(|(suggestion, _)| suggestion)
        .collect()
}

/// Letters to be inserted, deleted or replaced to make `from` of `to`.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        for (from, to, distance) in [
            ("pods", "pods", 0),
            ("podz", "pods", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("deploymnet", "deployment", 2),
        ] {
            assert_eq!(edits(from, to), distance, "{from} {to}");
        }
    }

    #[test]
    fn suggests_the_closest_first_and_nothing_far() {
        let names = ["pods", "nodes", "podtemplates", "secrets"];
        let pairs = || {
            names
                .iter()
                .map(|name| ((*name).to_owned(), (*name).to_owned()))
        };
        assert_eq!(closest("podz", pairs()), ["pods"]);
        assert_eq!(closest("nodez", pairs()), ["nodes"]);
        assert!(closest("zebra", pairs()).is_empty());
    }
}
