//! Chooses the objects for a comparison of rows.

use std::collections::{HashMap, HashSet};

use rand::Rng;
use rand::seq::SliceRandom;

/// Chooses up to `count` rows. `rows` has the cells of each object. Three quarters have different
/// cells. The others, and which of several similar rows is chosen, depend on `random`, so that
/// repeated comparisons examine other rows.
///
/// A column with more different values than half of the number of rows, such as names or addresses,
/// says nothing about how different two rows are.
pub(super) fn varied(rows: &[Vec<String>], count: usize, random: &mut impl Rng) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let is_category: Vec<bool> = (0..columns)
        .map(|column| {
            let values: HashSet<_> = rows.iter().filter_map(|row| row.get(column)).collect();
            values.len() * 2 <= rows.len()
        })
        .collect();
    let categories = |row: usize| {
        let cells = rows[row].iter().enumerate();
        cells.filter(|(column, _)| is_category[*column])
    };
    // The rarest values first: there may be one failed pod among thousands.
    let mut frequencies: HashMap<(usize, &str), usize> = HashMap::new();
    for (column, cell) in (0..rows.len()).flat_map(categories) {
        *frequencies.entry((column, cell)).or_default() += 1;
    }
    let rarest = |row: usize| {
        let of_cells = categories(row).map(|(column, cell)| frequencies[&(column, cell.as_str())]);
        of_cells.min().unwrap_or(usize::MAX)
    };
    let mut order: Vec<_> = (0..rows.len()).collect();
    order.shuffle(random);
    order.sort_by_cached_key(|row| rarest(*row));
    let mut seen = HashSet::new();
    let (mut chosen, mut others) = (Vec::new(), Vec::new());
    for row in order {
        let mut is_new = false;
        for (column, cell) in categories(row) {
            is_new |= seen.insert((column, cell.as_str()));
        }
        if is_new && chosen.len() < (count.div_ceil(4) * 3).min(count) {
            chosen.push(row)
        } else {
            others.push(row)
        }
    }
    others.shuffle(random);
    let missing = count.saturating_sub(chosen.len());
    chosen.extend(others.into_iter().take(missing));
    chosen
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn rows(texts: &[&str]) -> Vec<Vec<String>> {
        let split = |text: &&str| text.split(' ').map(str::to_owned).collect();
        texts.iter().map(split).collect()
    }

    #[test]
    fn rare_values_are_chosen_first_and_identifiers_do_not_count() {
        let mut texts: Vec<String> = (0..100)
            .map(|number| format!("p{number} Running 0"))
            .collect();
        texts[70] = "p70 Failed 0".to_owned();
        texts[80] = "p80 Running 3".to_owned();
        texts[90] = "p90 Failed 0".to_owned();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut others = HashSet::new();
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let chosen = varied(&rows(&texts), 3, &mut random);
            // All values are in two rows, so the third is any other.
            assert!(chosen.contains(&80), "{chosen:?}");
            assert!(chosen.contains(&70) || chosen.contains(&90), "{chosen:?}");
            others.extend(chosen.into_iter().filter(|row| ![70, 80, 90].contains(row)));
        }
        assert!(others.len() > 10, "{others:?}");
        let mut random = StdRng::seed_from_u64(0);
        assert_eq!(varied(&rows(&texts), 500, &mut random).len(), 100);
    }

    #[test]
    fn few_rows_are_all_chosen() {
        let mut random = StdRng::seed_from_u64(0);
        assert!(varied(&[], 20, &mut random).is_empty());
        let mut chosen = varied(&rows(&["a x", "b x", "c"]), 20, &mut random);
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2]);
    }
}
