//! Column: by what clients are sorted.

use crate::bill::table::{ClientUsage, Count};

/// A column by which clients are sorted. All but `open`, `slow` and `saved` are those of the last
/// minute; equal ones are sorted by the counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bill) enum Column {
    /// Requests.
    #[default]
    Requests,
    /// Forwarded requests.
    Forwards,
    /// Objects in lists.
    Objects,
    /// Bytes of answers.
    Bytes,
    /// Events of watches.
    Events,
    /// Watches that are open now.
    Open,
    /// Watches that were opened.
    Opened,
    /// Time for which requests waited.
    Waited,
    /// Answers with 401.
    Unauthorized,
    /// Answers with 403.
    Forbidden,
    /// Answers with 410.
    Gone,
    /// Answers with 429.
    TooMany,
    /// Answers that were broken off.
    Stalls,
    /// For how long the reader has been behind.
    Slow,
    /// CPU time.
    Cpu,
    /// CPU time that the API server was saved since the start.
    Saved,
}

// === impl Column ===

impl Column {
    /// All columns, with their names.
    const ALL: [(Self, &str); 16] = [
        (Self::Requests, "requests"),
        (Self::Forwards, "forwards"),
        (Self::Objects, "objects"),
        (Self::Bytes, "bytes"),
        (Self::Events, "events"),
        (Self::Open, "open"),
        (Self::Opened, "opened"),
        (Self::Waited, "waited"),
        (Self::Unauthorized, "unauthorized"),
        (Self::Forbidden, "forbidden"),
        (Self::Gone, "gone"),
        (Self::TooMany, "tooMany"),
        (Self::Stalls, "stalls"),
        (Self::Slow, "slow"),
        (Self::Cpu, "cpu"),
        (Self::Saved, "saved"),
    ];

    /// Returns all columns, with their names.
    pub(in crate::bill) fn all() -> impl Iterator<Item = (Self, &'static str)> {
        Self::ALL.into_iter()
    }

    /// Returns what clients are sorted by: the value of the column, and the same since the start.
    pub(in crate::bill) fn value(self, usage: &ClientUsage) -> (u64, u64) {
        let count = match self {
            Self::Requests => Count::Requests,
            Self::Forwards => Count::Forwards,
            Self::Objects => Count::Objects,
            Self::Bytes => Count::Bytes,
            Self::Events => Count::Events,
            Self::Waited => Count::Waited,
            Self::Unauthorized => Count::Unauthorized,
            Self::Forbidden => Count::Forbidden,
            Self::Gone => Count::Gone,
            Self::TooMany => Count::TooMany,
            Self::Stalls => Count::Stalls,
            Self::Cpu => Count::Cpu,
            Self::Saved => return (usage.total.get(Count::SavedCpu), 0),
            Self::Open => return (usage.open_watches, 0),
            Self::Opened => {
                let opened = usage.minute.get(Count::WatchesOpened);
                return (opened, usage.open_watches);
            }
            Self::Slow => {
                let waited = usage
                    .slow
                    .as_ref()
                    .map(|slow| slow.behind.waited.as_millis());
                let waited = u64::try_from(waited.unwrap_or_default()).unwrap_or(u64::MAX);
                return (waited, 0);
            }
        };
        (usage.minute.get(count), usage.total.get(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_one_name() {
        for (column, name) in Column::all() {
            let same = Column::all().filter(|other| other.0 == column || other.1 == name);
            assert_eq!(same.count(), 1, "{name}");
        }
    }
}
