//! What the bill has of one client, as plain values. Advice and snapshots are made from it.

use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::counts::Counts;
use super::open::Behind;
use super::operation::OperationName;

/// What one client has used.
#[derive(Clone, Debug)]
pub(in crate::bill) struct ClientUsage {
    /// The client.
    pub(in crate::bill) client: Arc<Client>,
    /// How long the bill has had a row of the client. The counts are those of this time.
    pub(in crate::bill) age: Duration,
    /// The operations of the client. There is a limit of their number.
    pub(in crate::bill) operations: Vec<OperationUsage>,
    /// True if the client had further operations, whose rows gave way to these.
    pub(in crate::bill) has_other_operations: bool,
    /// The counts of all operations since the row began.
    pub(in crate::bill) total: Counts,
    /// The counts of the last minute.
    pub(in crate::bill) minute: Counts,
    /// The counts of the last ten minutes.
    pub(in crate::bill) ten_minutes: Counts,
    /// Watches that are open now.
    pub(in crate::bill) open_watches: u64,
    /// Why requests were forwarded: the metric label, and the number of requests.
    pub(in crate::bill) reasons: Vec<(&'static str, u64)>,
    /// The client's answers that are behind; `None` if all are up to date.
    pub(in crate::bill) slow: Option<Slow>,
}

/// What one operation of a client has used.
#[derive(Clone, Debug)]
pub(in crate::bill) struct OperationUsage {
    /// The operation.
    pub(in crate::bill) operation: Arc<OperationName>,
    /// Answers that are open now.
    pub(in crate::bill) open: u64,
    /// The counts since the row began.
    pub(in crate::bill) total: Counts,
    /// The counts of the last minute.
    pub(in crate::bill) minute: Counts,
    /// The counts of the last ten minutes.
    pub(in crate::bill) ten_minutes: Counts,
}

/// Answers of a client that are behind.
#[derive(Clone, Debug)]
pub(in crate::bill) struct Slow {
    /// The number of these answers.
    pub(in crate::bill) answers: u64,
    /// The operation of the answer that has waited longest.
    pub(in crate::bill) operation: Arc<OperationName>,
    /// How far this answer is behind.
    pub(in crate::bill) behind: Behind,
}

// === impl ClientUsage ===

impl ClientUsage {
    /// Returns all counts, to change them.
    pub(in crate::bill) fn counts_mut(&mut self) -> impl Iterator<Item = &mut Counts> {
        let of_operations = self.operations.iter_mut().flat_map(|operation| {
            [
                &mut operation.total,
                &mut operation.minute,
                &mut operation.ten_minutes,
            ]
        });
        let of_client = [&mut self.total, &mut self.minute, &mut self.ten_minutes];
        of_client.into_iter().chain(of_operations)
    }
}

// === impl Slow ===

impl Slow {
    /// Creates the sum of no answers. `operation` and `behind` are those of the first one to come.
    pub(super) fn new(operation: &Arc<OperationName>, behind: Behind) -> Self {
        Self {
            answers: 0,
            operation: Arc::clone(operation),
            behind,
        }
    }

    /// Adds an answer that is behind.
    pub(super) fn note(&mut self, operation: &Arc<OperationName>, behind: Behind) {
        self.answers += 1;
        if behind.waited > self.behind.waited {
            self.operation = Arc::clone(operation);
            self.behind = behind;
        }
    }
}
