//! Suggestions for mistyped names.

use std::collections::BTreeMap;

use strsim::levenshtein;

/// The largest number of suggestions.
const SUGGESTIONS: usize = 3;

/// Returns the suggestions with spellings similar to `name`, the most similar first.
/// `pairs` are spellings and suggestions; a spelling may differ in one letter, or a third
/// of the letters of `name`.
#[doc(hidden)]
pub fn closest(name: &str, pairs: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let tolerated = (name.chars().count() / 3).max(1);
    let mut distances: BTreeMap<String, usize> = BTreeMap::new();
    for (spelling, suggestion) in pairs {
        let distance = levenshtein(name, &spelling);
        if distance <= tolerated {
            let known = distances.entry(suggestion).or_insert(distance);
            *known = distance.min(*known);
        }
    }
    let mut found: Vec<_> = distances.into_iter().collect();
    found.sort_by_key(|(_, distance)| *distance);
    let names = found.into_iter().map(|(suggestion, _)| suggestion);
    names.take(SUGGESTIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(name: &str, names: &[&str]) -> Vec<String> {
        let pairs = names
            .iter()
            .map(|name| ((*name).to_owned(), (*name).to_owned()));
        closest(name, pairs)
    }

    #[test]
    fn suggests_the_closest_first_and_nothing_distant() {
        let names = ["pods", "nodes", "podtemplates", "secrets"];
        for (name, suggestions) in [
            ("pods", vec!["pods"]),
            ("podz", vec!["pods"]),
            ("nodez", vec!["nodes"]),
            ("zebra", vec![]),
        ] {
            assert_eq!(suggested(name, &names), suggestions, "{name}");
        }
        let names = ["deployments", "deployment", "pods"];
        assert_eq!(
            suggested("deploymnet", &names),
            ["deployment", "deployments"]
        );
    }

    #[test]
    fn a_third_of_the_letters_may_be_inserted_deleted_or_replaced() {
        for (name, spelling, is_close) in [
            ("abcdefghi", "abcdefghixyz", true),
            ("abcdefghi", "abcdefghiwxyz", false),
            ("abcdefghi", "abcdef", true),
            ("abcdefghi", "abcde", false),
            ("abcdefghi", "xyzdefghi", true),
            ("abcdefghi", "wxyzefghi", false),
            // One letter may always differ, and letters are counted, not bytes.
            ("a", "b", true),
            ("äöü", "äöx", true),
            ("äöü", "xöx", false),
        ] {
            let suggestions = suggested(name, &[spelling]);
            assert_eq!(
                suggestions.len(),
                usize::from(is_close),
                "{name} {spelling}"
            );
        }
    }
}
