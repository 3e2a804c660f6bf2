//! Budgets: limit the bytes that the request path may hold to share them between clients.

use kubefan_core::telemetry::Registry;

use crate::ledger::{Budget, Limits};

/// The budgets of the request path. Clones share the counts.
#[derive(Clone, Debug)]
pub(in crate::server) struct Budgets {
    /// Compressed lists, and texts of lists of metadata and of Tables, including those that slow
    /// clients have not read yet. Beyond this budget, the list of each client is made separately.
    pub(in crate::server) lists: Budget,
    /// Compressed chunks of initial events. Chunks beyond this budget are compressed again for each
    /// later watch.
    pub(in crate::server) chunks: Budget,
    /// Printed rows of Tables. Others are printed for each answer.
    pub(in crate::server) rows: Budget,
    /// Discovery and OpenAPI documents.
    pub(in crate::server) documents: Budget,
    /// The API server's 403s.
    pub(in crate::server) forbidden: Budget,
    /// What users have read and written. Those beyond this budget are forgotten.
    pub(in crate::server) sessions: Budget,
}

impl Budgets {
    /// Registers the counts in `registry`. The budgets are within `memory`.
    pub(in crate::server) fn new(registry: &Registry, memory: &Limits) -> Self {
        let budgets = Self::within(memory);
        let all = budgets.clone();
        registry.on_scrape(move |samples| {
            for budget in all.all() {
                budget.sample(samples);
            }
        });
        budgets
    }

    /// Returns the bytes of each budget and their upper limit, with the name of the kind.
    pub(in crate::server) fn usage(&self) -> Vec<(&'static str, usize, usize)> {
        let all = self.all().into_iter();
        all.map(|budget| (budget.kind(), budget.used(), budget.limit()))
            .collect()
    }

    fn all(&self) -> [&Budget; 6] {
        let Self {
            lists,
            chunks,
            rows,
            documents,
            forbidden,
            sessions,
        } = self;
        [lists, chunks, rows, documents, forbidden, sessions]
    }

    /// Creates budgets that no metric shows.
    pub(in crate::server) fn within(memory: &Limits) -> Self {
        const MIB: usize = 1 << 20;
        Self {
            lists: Budget::new("list", memory, 64 * MIB),
            chunks: Budget::new("chunk", memory, 32 * MIB),
            rows: Budget::new("row", memory, 64 * MIB),
            documents: Budget::new("document", memory, 64 * MIB),
            forbidden: Budget::new("forbidden", memory, 16 * MIB),
            sessions: Budget::new("session", memory, 32 * MIB),
        }
    }
}
