//! Snapshot: the bill as the admin API shows it.

mod column;
mod rows;

use std::cmp::Reverse;
use std::time::Duration;

pub use column::Column;
pub use rows::{ClientRow, ForwardedRow, Numbers, OperationRow, Saved, SlowRow};
use serde::Serialize;

use super::advice::Context;
use super::table::{ClientUsage, Count, Counts};

/// What a snapshot shows.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// The most clients.
    pub top: usize,
    /// The column by which they are sorted, the largest first.
    pub sort: Column,
    /// What the advice depends on.
    pub context: Context,
    /// The CPU time of the process, by [`process_time`](crate::bill::process_time).
    pub process_cpu: Duration,
}

/// The bill.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Seconds since the bill began.
    pub seconds: f64,
    /// The number of clients with rows. Further ones are only in `other`.
    pub clients_with_rows: usize,
    /// The first clients.
    pub clients: Vec<ClientRow>,
    /// All requests, since the bill began.
    pub total: Numbers,
    /// The part of `total` that belongs to no row: requests of clients whose rows gave way to others.
    pub other: Numbers,
    /// kubefan's CPU time.
    pub cpu: CpuShares,
}

/// kubefan's CPU time since the start of the process, in seconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuShares {
    /// The sum of the others.
    pub process_seconds: f64,
    /// For requests and answers of clients.
    pub clients_seconds: f64,
    /// For reading from the API server and filling the caches.
    pub ingest_seconds: f64,
    /// The rest: what serves several clients at once, and what samples have missed.
    pub shared_seconds: f64,
}

// === impl Snapshot ===

impl Snapshot {
    /// Makes a snapshot of `usages` and of the counts of `other` clients. The bill began `age` ago.
    pub(super) fn new(
        mut usages: Vec<ClientUsage>,
        other: &Counts,
        ingest: Duration,
        age: Duration,
        options: &SnapshotOptions,
    ) -> Self {
        let mut total = *other;
        for usage in &usages {
            total += &usage.total();
        }
        let with_rows = usages.iter().filter(|usage| !usage.operations.is_empty());
        let clients_with_rows = with_rows.count();
        usages.sort_by_cached_key(|usage| Reverse(options.sort.value(usage)));
        usages.truncate(options.top);
        let rows = usages.iter();
        let rows = rows.map(|usage| ClientRow::new(usage, options.context));
        Self {
            seconds: age.as_secs_f64(),
            clients_with_rows,
            clients: rows.collect(),
            total: Numbers::new(&total),
            other: Numbers::new(other),
            cpu: CpuShares::new(&total, ingest, options.process_cpu),
        }
    }
}

impl CpuShares {
    fn new(total: &Counts, ingest: Duration, process: Duration) -> Self {
        let clients = Duration::from_nanos(total.get(Count::Cpu));
        let shared = process.saturating_sub(clients).saturating_sub(ingest);
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
        for (ingest, process, shared) in [(2, 10, 5.0), (2, 5, 0.0), (2, 4, 0.0)] {
            let [ingest, process] = [ingest, process].map(Duration::from_secs);
            let shares = CpuShares::new(&clients, ingest, process);
            assert_eq!(shares.shared_seconds, shared);
            assert_eq!(shares.clients_seconds, 3.0);
        }
    }
}
