//! What a sweep drops, as pure functions.

use std::collections::HashMap;

/// Returns the indexes of what to drop so that the rest costs at most `limit`, and what the rest
/// costs. Each entry of `costs` has its source and its cost. For a snapshot, the source is its
/// cache. Everything else has a separate source.
///
/// A snapshot's cost includes the costs of newer snapshots of its cache, so a cache costs as much
/// as its most expensive snapshot. Snapshots are dropped in this order: the most expensive ones
/// first.
pub(super) fn to_drop(costs: &[(usize, u64)], limit: u64) -> (Vec<usize>, u64) {
    let mut by_cost: Vec<usize> = (0..costs.len()).collect();
    by_cost.sort_by_key(|index| costs[*index].1);
    // In ascending order, so that the last cost of a cache is what the cache costs.
    let mut by_cache: HashMap<usize, Vec<u64>> = HashMap::new();
    for index in &by_cost {
        let (cache, cost) = costs[*index];
        by_cache.entry(cache).or_default().push(cost);
    }
    let dearest = by_cache.values().filter_map(|costs| costs.last());
    let mut sum = dearest.fold(0_u64, |sum, cost| sum.saturating_add(*cost));
    let mut dropped = Vec::new();
    while sum > limit
        && let Some(index) = by_cost.pop()
    {
        let (cache, cost) = costs[index];
        if let Some(left) = by_cache.get_mut(&cache) {
            left.pop();
            sum = sum - cost + left.last().copied().unwrap_or(0);
        }
        dropped.push(index);
    }
    (dropped, sum)
}

/// Returns the indexes of the connections to close so that the buffers of the rest hold at most
/// `limit`. The connections with the largest buffers are closed first.
pub(super) fn to_close(buffers: &[u64], limit: u64) -> Vec<usize> {
    let mut sum = buffers
        .iter()
        .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    if sum <= limit {
        return Vec::new();
    }
    let mut by_size: Vec<usize> = (0..buffers.len()).collect();
    by_size.sort_by_key(|index| buffers[*index]);
    let mut closed = Vec::new();
    while sum > limit
        && let Some(index) = by_size.pop()
    {
        sum -= buffers[index];
        closed.push(index);
    }
    closed
}

/// Returns the index of the largest total; `None` if all are zero.
pub(super) fn largest(totals: impl Iterator<Item = u64>) -> Option<usize> {
    let charged = totals.enumerate().filter(|(_, total)| *total > 0);
    charged
        .max_by_key(|(_, total)| *total)
        .map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_dearest_snapshots_are_dropped_first() {
        let costs = [(1, 10), (1, 30), (2, 20), (1, 10), (3, 0)];
        let rows: [(u64, &[usize], u64); 6] = [
            (50, &[], 50),
            (49, &[1], 30),
            (30, &[1], 30),
            (29, &[1, 2], 10),
            (9, &[1, 2, 3, 0], 0),
            (0, &[1, 2, 3, 0], 0),
        ];
        for (limit, dropped, cost) in rows {
            let expected = (dropped.to_vec(), cost);
            assert_eq!(to_drop(&costs, limit), expected, "{limit}");
        }
        assert_eq!(to_drop(&[], 0), (Vec::new(), 0));
    }

    #[test]
    fn the_largest_buffers_are_closed_first() {
        let buffers = [0, 10, 30, 0, 20];
        let rows: [(u64, &[usize]); 5] = [
            (60, &[]),
            (59, &[2]),
            (30, &[2]),
            (29, &[2, 4]),
            (0, &[2, 4, 1]),
        ];
        for (limit, closed) in rows {
            assert_eq!(to_close(&buffers, limit), closed, "{limit}");
        }
        assert!(to_close(&[], 0).is_empty());
    }

    #[test]
    fn the_largest_account_is_chosen() {
        assert_eq!(largest([].into_iter()), None);
        assert_eq!(largest([0, 0].into_iter()), None);
        assert_eq!(largest([1, 5, 0, 4].into_iter()), Some(1));
    }

    /// Returns what the caches of `costs` cost together.
    fn cost_of(costs: impl Iterator<Item = (usize, u64)>) -> u64 {
        let mut dearest = HashMap::new();
        for (cache, cost) in costs {
            let of_cache = dearest.entry(cache).or_insert(0);
            *of_cache = cost.max(*of_cache);
        }
        dearest.values().sum()
    }

    proptest! {
        #[test]
        fn the_rest_is_within_the_limit_and_nothing_is_dropped_in_vain(
            costs in vec((0..4_usize, 0..100_u64), 0..20),
            limit in 0..300_u64,
        ) {
            let (dropped, cost) = to_drop(&costs, limit);
            let left = |dropped: &[usize]| {
                let left = (0..costs.len()).filter(|index| !dropped.contains(index));
                cost_of(left.map(|index| costs[index]))
            };
            prop_assert!(cost <= limit);
            prop_assert_eq!(left(&dropped), cost);
            if let Some((_, before_last)) = dropped.split_last() {
                prop_assert!(left(before_last) > limit);
            }
            let cheapest_dropped = dropped.iter().map(|index| costs[*index].1).min();
            for (index, (_, cost)) in costs.iter().enumerate() {
                let is_kept = !dropped.contains(&index);
                prop_assert!(!is_kept || cheapest_dropped.is_none_or(|dropped| *cost <= dropped));
            }
        }
    }
}
