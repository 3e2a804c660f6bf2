//! The bill: what each client uses, what it saves the API server, and what it should change.
//!
//! A client is a user with one of its programs. The server passes an [`Entry`] to [`Bill::record`]
//! for each request, and to [`Bill::open`] for each answer that takes long, such as a watch. An
//! open answer calls nothing for an event: the bill asks it when it is read, and every few seconds
//! ([`Bill::settle`]). [`Bill::snapshot`] is what the admin API shows.
//!
//! ```text
//! table/      rows of clients and operations in bounded memory, open answers
//! estimate/   what a read would have cost the API server: seats, CPU time
//! advice/     what a client should change, and why
//! cpu         CPU time, by samples and by threads
//! snapshot    the bill as JSON
//! ```

mod advice;
mod cpu;
pub mod estimate;
mod snapshot;
mod table;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub use advice::Context;
use advice::advise;
pub use cpu::{CpuAccount, process_time, serving_time};
use kubefan_core::telemetry::Samples;
use snapshot::Column;
pub use snapshot::{
    AdviceRow, ClientRow, CpuShares, LargestRow, Numbers, Snapshot, SnapshotOptions,
};
pub use table::{
    Behind, Conditions, Entry, Identity, OpenAnswer, OpenHandle, Operation, Outcome, Progress,
    SelectorClass,
};
use table::{Count, Table};
use tokio::time::Instant;

use crate::ledger::{Budget, Limits};

/// The most bytes of rows.
const MOST_BYTES: usize = 16 << 20;

/// The metrics of what the answers from caches would have cost the API server.
const SAVED: [(&str, &str, Count); 3] = [
    (
        "kubefan_saved_requests_total",
        "Requests that caches have answered instead of the API server.",
        Count::SavedRequests,
    ),
    (
        "kubefan_saved_list_objects_total",
        "Objects in lists that caches have answered instead of the API server.",
        Count::SavedObjects,
    ),
    (
        "kubefan_saved_watch_events_total",
        "Events that caches have sent to watches instead of the API server.",
        Count::SavedEvents,
    ),
];
const SAVED_CPU: &str = "kubefan_saved_cpu_seconds_total";
const SAVED_CPU_HELP: &str =
    "An estimate of the CPU time that the answers from caches would have cost the API server.";

/// What all clients have used.
pub struct Bill {
    table: Arc<Table>,
    budget: Budget,
}

// === impl Bill ===

impl Bill {
    /// Creates an empty bill, which begins at `now`. Its rows take at most 16 MiB, and less if the
    /// `limits` of memory are low. Each open answer takes 64 bytes more.
    pub fn new(limits: &Limits, now: Instant) -> Self {
        let budget = Budget::new("bill", limits, MOST_BYTES);
        Self {
            table: Arc::new(Table::new(budget.limit(), now)),
            budget,
        }
    }

    /// Counts a request whose answer has ended.
    pub fn record(&self, entry: &Entry<'_>, now: Instant) {
        self.table.record(entry, now);
    }

    /// Counts a request whose answer begins, such as a watch. What the answer delivers is counted
    /// while it is open, and when the handle is dropped, with the CPU time that is in `cpu` then.
    pub fn open(
        &self,
        entry: &Entry<'_>,
        answer: Arc<dyn OpenAnswer>,
        cpu: Option<Arc<CpuAccount>>,
        now: Instant,
    ) -> OpenHandle {
        self.table.open(entry, answer, cpu, now)
    }

    /// Counts what open answers have delivered. It should be called every ten seconds, so that the
    /// counts of the last minute are those of the last minute.
    pub fn settle(&self, now: Instant) {
        self.table.settle(now);
        self.budget.set_used(self.table.bytes());
    }

    /// Returns the bill at `now`.
    pub fn snapshot(&self, options: &SnapshotOptions<'_>, now: Instant) -> Snapshot {
        let (usages, other) = self.table.read(now);
        Snapshot::new(usages, &other, self.table.age(now), options)
    }

    /// Returns all advice at `now`, for the clients with the most requests in the last minute first.
    /// `number_of` numbers users.
    pub fn advice(
        &self,
        context: Context<'_>,
        number_of: &dyn Fn(&str) -> u64,
        now: Instant,
    ) -> Vec<AdviceRow> {
        let (mut usages, _) = self.table.read(now);
        usages.sort_by_cached_key(|usage| Reverse(Column::Requests.value(usage)));
        let rows = usages.iter().flat_map(|usage| {
            let advice = advise(usage, context).into_iter();
            advice.map(move |advice| AdviceRow::new(&usage.client, advice, number_of))
        });
        rows.collect()
    }

    /// Returns the names of the users with rows, each once, sorted.
    pub fn users(&self) -> BTreeSet<String> {
        self.table.users()
    }

    /// Returns the kind of the bill's memory, its bytes and their limit.
    pub fn kept_bytes(&self) -> (&'static str, usize, usize) {
        let (kind, limit) = (self.budget.kind(), self.budget.limit());
        (kind, self.table.bytes(), limit)
    }

    /// Adds what the API server was saved until `now`, the memory of the bill, and its limit, to
    /// `samples`.
    pub fn sample(&self, now: Instant, samples: &mut Samples) {
        let total = self.table.total(now);
        for (name, help, count) in SAVED {
            samples.counter(name, help, &[], total.get(count) as f64);
        }
        let seconds = Duration::from_nanos(total.get(Count::SavedCpu)).as_secs_f64();
        samples.counter(SAVED_CPU, SAVED_CPU_HELP, &[], seconds);
        self.budget.set_used(self.table.bytes());
        self.budget.sample(samples);
    }
}

#[cfg(test)]
mod tests;
