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
//! cpu         CPU time by samples
//! snapshot    the bill as JSON
//! ```

mod advice;
mod cpu;
pub mod estimate;
mod snapshot;
mod table;

use std::sync::Arc;

pub use advice::{Advice, AdviceKind, Context, advise};
pub use cpu::{CpuAccount, MeasuredBody, measured, process_time};
use kubefan_core::telemetry::Samples;
pub use snapshot::{
    ClientRow, Column, CpuShares, ForwardedRow, Numbers, OperationRow, Saved, SlowRow, Snapshot,
    SnapshotOptions,
};
use table::Table;
pub use table::{
    Behind, Client, ClientUsage, Conditions, Count, Counts, Entry, Identity, OpenAnswer,
    OpenHandle, Operation, OperationName, OperationUsage, Outcome, Progress, SHORT_WATCH,
    SelectorClass, Slow,
};
use tokio::time::Instant;

use crate::ledger::{Budget, Limits};

/// The most bytes of rows.
const MOST_BYTES: usize = 16 << 20;

/// What all clients have used.
pub struct Bill {
    table: Arc<Table>,
    budget: Budget,
    ingest: Arc<CpuAccount>,
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
            ingest: Arc::default(),
        }
    }

    /// Counts a request whose answer has ended.
    pub fn record(&self, entry: &Entry<'_>, now: Instant) {
        self.table.record(entry, now);
    }

    /// Counts a request whose answer begins, such as a watch. What the answer delivers is counted
    /// while it is open, and when the handle is dropped.
    pub fn open(&self, entry: &Entry<'_>, answer: Arc<dyn OpenAnswer>, now: Instant) -> OpenHandle {
        self.table.open(entry, answer, now)
    }

    /// Counts what open answers have delivered. It should be called every ten seconds, so that the
    /// counts of the last minute are those of the last minute.
    pub fn settle(&self, now: Instant) {
        self.table.settle(now);
        self.budget.set_used(self.table.bytes());
    }

    /// Returns the account of the tasks that read from the API server.
    pub fn ingest(&self) -> &Arc<CpuAccount> {
        &self.ingest
    }

    /// Returns the bill at `now`.
    pub fn snapshot(&self, options: &SnapshotOptions, now: Instant) -> Snapshot {
        let (usages, other) = self.table.read(now);
        let (ingest, age) = (self.ingest.total(), self.table.age(now));
        Snapshot::new(usages, &other, ingest, age, options)
    }

    /// Adds the memory of the bill, and its limit, to `samples`.
    pub fn sample(&self, samples: &mut Samples) {
        self.budget.set_used(self.table.bytes());
        self.budget.sample(samples);
    }
}

#[cfg(test)]
mod tests;
