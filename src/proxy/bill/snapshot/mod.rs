//! Snapshot: the bill as the admin API shows it.

mod column;
mod rows;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use column::Column;
pub use rows::{AdviceRow, ClientRow, Numbers};
use schemars::JsonSchema;
use serde::Serialize;

use super::advice::Context;
use super::table::{ClientUsage, Count, Counts};

/// What a snapshot shows.
#[derive(Clone, Copy)]
pub struct SnapshotOptions<'a> {
    /// The most clients that are shown because of their requests in the last minute.
    pub top: usize,
    /// The most clients that are shown because of each column.
    pub top_of_column: usize,
    /// What the advice depends on.
    pub context: Context<'a>,
    /// The CPU time of the process, by [`process_time`](crate::bill::process_time).
    pub process_cpu: Duration,
    /// The CPU time of the threads that serve clients, by
    /// [`serving_time`](crate::bill::serving_time); that of the process if it is not known.
    pub serving_cpu: Duration,
    /// Numbers users, so that their names are not shown.
    pub number_of: &'a dyn Fn(&str) -> u64,
}

/// The bill.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Seconds since the bill began.
    pub seconds: f64,
    /// The number of clients with rows. Further ones are only in `other`.
    pub clients_with_rows: usize,
    /// The clients with the most requests in the last minute, and those that are first in another
    /// column. Those with the most requests come first.
    pub clients: Vec<ClientRow>,
    /// The first clients of each column that is not 0 for all.
    pub largest: Vec<LargestRow>,
    /// All requests, since the bill began.
    pub total: Numbers,
    /// The part of `total` that belongs to no row: requests of clients whose rows gave way to others.
    pub other: Numbers,
    /// kubefan's CPU time.
    pub cpu: CpuShares,
}

/// The first clients of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LargestRow {
    /// The column.
    pub column: &'static str,
    /// The positions of the clients in the list of clients, the largest value first.
    pub clients: Vec<usize>,
}

/// kubefan's CPU time since the start of the process, in seconds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuShares {
    /// The sum of the others.
    pub process_seconds: f64,
    /// For requests and answers of clients, by samples.
    pub clients_seconds: f64,
    /// Of the threads that serve no client: they read from the API server, fill the caches, and
    /// make what clients share.
    pub ingest_seconds: f64,
    /// The rest: what serves several clients at once, and what samples have missed.
    pub shared_seconds: f64,
}

// === impl Snapshot, CpuShares ===

impl Snapshot {
    /// Makes a snapshot of `usages` and of the counts of `other` clients. The bill began `age` ago.
    pub(super) fn new(
        mut usages: Vec<ClientUsage>,
        other: &Counts,
        age: Duration,
        options: &SnapshotOptions<'_>,
    ) -> Self {
        let mut other = *other;
        let mut total = other;
        for usage in &usages {
            total += &usage.total;
        }
        if let Some(factor) = excess_of_samples(&total, options.serving_cpu) {
            let of_clients = usages.iter_mut().flat_map(ClientUsage::counts_mut);
            for counts in of_clients.chain([&mut total, &mut other]) {
                counts.scale(Count::Cpu, factor);
            }
        }
        let with_rows = usages.iter().filter(|usage| !usage.operations.is_empty());
        let clients_with_rows = with_rows.count();
        usages.sort_by_cached_key(|usage| Reverse(Column::Requests.value(usage)));
        let (shown, largest) = selected(&usages, options);
        let rows = shown.into_iter().map(|index| &usages[index]);
        let rows = rows.map(|usage| ClientRow::new(usage, options.context, options.number_of));
        Self {
            seconds: age.as_secs_f64(),
            clients_with_rows,
            clients: rows.collect(),
            largest,
            total: Numbers::new(&total),
            other: Numbers::new(&other),
            cpu: CpuShares::new(&total, options.serving_cpu, options.process_cpu),
        }
    }
}

/// If the samples of clients have counted more than the threads that serve them have used, returns the
/// factor that makes both equal. The kernel's time of the threads is right.
fn excess_of_samples(total: &Counts, serving: Duration) -> Option<f64> {
    let sampled = Duration::from_nanos(total.get(Count::Cpu));
    (sampled > serving).then(|| serving.as_secs_f64() / sampled.as_secs_f64())
}

/// Returns the indexes of the clients that are shown, in ascending order, and the first clients of
/// each column. `usages` are sorted by requests.
fn selected(
    usages: &[ClientUsage],
    options: &SnapshotOptions<'_>,
) -> (Vec<usize>, Vec<LargestRow>) {
    let columns = Column::all().map(|(column, name)| {
        let values = usages.iter().map(|usage| column.value(usage));
        let values = values.enumerate().filter(|(_, value)| *value > (0, 0));
        let mut values: Vec<_> = values.collect();
        values.sort_by_key(|(_, value)| Reverse(*value));
        values.truncate(options.top_of_column);
        let first: Vec<usize> = values.into_iter().map(|(index, _)| index).collect();
        (name, first)
    });
    let columns: Vec<_> = columns.filter(|(_, first)| !first.is_empty()).collect();
    let mut positions: BTreeMap<usize, usize> = (0..options.top.min(usages.len()))
        .chain(columns.iter().flat_map(|(_, first)| first).copied())
        .map(|index| (index, 0))
        .collect();
    for (place, position) in positions.values_mut().enumerate() {
        *position = place;
    }
    let largest = columns.into_iter().map(|(column, first)| LargestRow {
        column,
        clients: first.iter().map(|index| positions[index]).collect(),
    });
    let largest = largest.collect();
    (positions.into_keys().collect(), largest)
}

impl CpuShares {
    fn new(total: &Counts, serving: Duration, process: Duration) -> Self {
        let clients = Duration::from_nanos(total.get(Count::Cpu));
        // Other threads may have ended, and their time is only in that of the process.
        let ingest = process.saturating_sub(serving);
        let shared = serving.saturating_sub(clients);
        Self {
            process_seconds: process.as_secs_f64(),
            clients_seconds: clients.as_secs_f64(),
            ingest_seconds: ingest.as_secs_f64(),
            shared_seconds: shared.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_cpu_time_add_up() {
        let clients = Counts::default().with(Count::Cpu, 3_000_000_000);
        for (serving, process, ingest, shared) in [
            (8, 10, 2.0, 5.0),
            (10, 10, 0.0, 7.0),
            // The clocks differ.
            (3, 2, 0.0, 0.0),
        ] {
            let [serving, process] = [serving, process].map(Duration::from_secs);
            let shares = CpuShares::new(&clients, serving, process);
            assert_eq!(shares.ingest_seconds, ingest);
            assert_eq!(shares.shared_seconds, shared);
            assert_eq!(shares.clients_seconds, 3.0);
        }
    }
}
