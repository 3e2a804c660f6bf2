//! Decides whether kubefan may print the Tables of a kind: a state machine without I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::server::decide::Reason;

/// The largest number of objects that a check compares.
pub(super) const SAMPLE: usize = 20;
/// The number of Tables after which a kind is checked again.
const TABLES_PER_CHECK: u64 = 1_000;
/// The pause after a check without an answer of the API server.
const RETRY: Duration = Duration::from_secs(10);
/// The pause after a check that found other columns than the definition of the resource has. The
/// API server applies a change of the definition with a short delay.
const DEFINITION_RETRY: Duration = Duration::from_secs(30);

/// The results of the checks of one kind, and when the next check is due.
#[derive(Debug, Default)]
pub(super) struct State {
    verdict: Verdict,
    is_checking: bool,
    /// No check begins before this; `None` if one may begin at once.
    not_before: Option<Instant>,
    /// Tables that were printed since the last check.
    printed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    /// Nothing was compared yet.
    #[default]
    Unknown,
    /// The rows of `compared` objects were equal. The cache had `objects` then.
    Equal { compared: usize, objects: usize },
    /// Something differed.
    Differs,
    /// An object could not be printed. No later check changes this verdict.
    Unprintable,
    /// Another kind is printed in place of this one.
    Retired,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    /// The columns and the rows of `compared` objects are equal; the cache has `objects`.
    Equal { compared: usize, objects: usize },
    /// The columns differ.
    OtherColumns,
    /// A cell differs.
    OtherCells,
    /// The API server's rows are not in the order of the objects' keys.
    OtherOrder,
    /// The API server gave no answer that can be compared.
    Failed,
}

impl State {
    /// Decides whether a Table of a cache with `objects` is printed or forwarded, and whether the
    /// caller must begin a check.
    pub(super) fn admit(&mut self, objects: usize, now: Instant) -> (Result<(), Reason>, bool) {
        let is_due = match self.verdict {
            Verdict::Unknown => true,
            Verdict::Differs => self.not_before.is_some(),
            Verdict::Unprintable | Verdict::Retired => false,
            Verdict::Equal { compared: 0, .. } => objects > 0,
            Verdict::Equal {
                compared,
                objects: before,
            } => {
                self.printed += 1;
                let has_grown = compared < SAMPLE && objects >= 2 * before.max(1);
                has_grown || self.printed >= TABLES_PER_CHECK
            }
        };
        let may_begin = self.not_before.is_none_or(|start| now >= start);
        let begins = is_due && may_begin && !self.is_checking;
        self.is_checking |= begins;
        (self.admission(), begins)
    }

    /// Returns whether a Table is printed now, or why it is forwarded.
    pub(super) fn admission(&self) -> Result<(), Reason> {
        match self.verdict {
            // Columns alone say little about cells. A watch that begins without objects may print
            // rows later.
            Verdict::Unknown | Verdict::Retired | Verdict::Equal { compared: 0, .. } => {
                Err(Reason::TableUnchecked)
            }
            Verdict::Differs | Verdict::Unprintable => Err(Reason::TableDiffers),
            Verdict::Equal { .. } => Ok(()),
        }
    }

    /// Records the result of the check that [`State::admit`] asked for. `is_custom` is true for a
    /// custom resource.
    pub(super) fn checked(&mut self, outcome: &CheckResult, is_custom: bool, now: Instant) {
        self.is_checking = false;
        self.not_before = None;
        if matches!(self.verdict, Verdict::Unprintable | Verdict::Retired) {
            return;
        }
        match *outcome {
            CheckResult::Equal { compared, objects } => {
                self.verdict = Verdict::Equal { compared, objects };
                self.printed = 0;
            }
            CheckResult::OtherColumns if is_custom => {
                self.verdict = Verdict::Differs;
                self.not_before = Some(now + DEFINITION_RETRY);
            }
            CheckResult::OtherColumns | CheckResult::OtherCells | CheckResult::OtherOrder => {
                self.verdict = Verdict::Differs;
            }
            CheckResult::Failed => self.not_before = Some(now + RETRY),
        }
    }

    /// Records that an object could not be printed.
    pub(super) fn cannot_print(&mut self) {
        if self.verdict != Verdict::Retired {
            self.verdict = Verdict::Unprintable;
        }
    }

    /// Records that another kind is printed in place of this one.
    pub(super) fn retire(&mut self) {
        self.verdict = Verdict::Retired;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: Result<(), Reason> = Ok(());
    const UNCHECKED: Result<(), Reason> = Err(Reason::TableUnchecked);
    const DIFFERS: Result<(), Reason> = Err(Reason::TableDiffers);

    fn equal(compared: usize, objects: usize) -> CheckResult {
        CheckResult::Equal { compared, objects }
    }

    #[test]
    fn nothing_is_printed_before_it_was_compared() {
        let now = Instant::now();
        let mut state = State::default();
        assert_eq!(state.admit(5, now), (UNCHECKED, true));
        assert_eq!(state.admit(5, now), (UNCHECKED, false));
        state.checked(&CheckResult::Failed, false, now);
        assert_eq!(state.admit(5, now), (UNCHECKED, false));
        assert_eq!(state.admit(5, now + RETRY), (UNCHECKED, true));
        state.checked(&equal(5, 5), false, now);
        assert_eq!(state.admit(5, now), (PRINT, false));
    }

    #[test]
    fn an_empty_collection_is_compared_again_when_it_has_objects() {
        let now = Instant::now();
        let mut state = State::default();
        assert_eq!(state.admit(0, now), (UNCHECKED, true));
        state.checked(&equal(0, 0), false, now);
        assert_eq!(state.admit(0, now), (UNCHECKED, false));
        assert_eq!(state.admit(1, now), (UNCHECKED, true));
        state.checked(&equal(1, 1), false, now);
        assert_eq!(state.admit(1, now), (PRINT, false));
        // While the next check runs, the kind is printed.
        assert_eq!(state.admit(2, now), (PRINT, true));
        assert_eq!(state.admit(2, now), (PRINT, false));
        state.checked(&equal(SAMPLE, 50), false, now);
        assert_eq!(state.admit(500, now), (PRINT, false));
    }

    #[test]
    fn a_kind_is_compared_again_after_a_thousand_tables() {
        let now = Instant::now();
        let mut state = State::default();
        assert_eq!(state.admit(50, now), (UNCHECKED, true));
        state.checked(&equal(SAMPLE, 50), false, now);
        for round in 0..2 {
            for table in 1..TABLES_PER_CHECK {
                assert_eq!(state.admit(50, now), (PRINT, false), "{table}");
            }
            assert_eq!(state.admit(50, now), (PRINT, true), "{round}");
            state.checked(&equal(SAMPLE, 50), false, now);
        }
        // A failed check does not count, and is repeated.
        for _ in 1..TABLES_PER_CHECK {
            assert_eq!(state.admit(50, now), (PRINT, false));
        }
        assert_eq!(state.admit(50, now), (PRINT, true));
        state.checked(&CheckResult::Failed, false, now);
        assert_eq!(state.admit(50, now), (PRINT, false));
        assert_eq!(state.admit(50, now + RETRY), (PRINT, true));
        state.checked(&CheckResult::OtherCells, false, now);
        assert_eq!(state.admit(50, now + RETRY), (DIFFERS, false));
    }

    #[test]
    fn a_check_does_not_change_that_a_kind_is_unprintable_or_retired() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        for (ends, expected) in [
            (State::cannot_print as fn(&mut State), DIFFERS),
            (State::retire, UNCHECKED),
        ] {
            let mut state = State::default();
            assert_eq!(state.admit(5, now), (UNCHECKED, true));
            state.checked(&equal(5, 5), false, now);
            assert_eq!(state.admit(10, now), (PRINT, true));
            ends(&mut state);
            assert_eq!(state.admit(10, now), (expected, false));
            state.checked(&equal(10, 10), false, now);
            assert_eq!(state.admit(10, later), (expected, false));
        }
        let mut state = State::default();
        state.retire();
        state.cannot_print();
        assert_eq!(state.admit(1, now), (UNCHECKED, false));
    }

    #[test]
    fn only_the_columns_of_a_definition_get_another_chance() {
        let now = Instant::now();
        let later = now + Duration::from_secs(3600);
        // Whether the comparison is repeated after an hour.
        let is_repeated = |outcome: &CheckResult, is_custom| {
            let mut state = State::default();
            assert_eq!(state.admit(1, now), (UNCHECKED, true));
            state.checked(outcome, is_custom, now);
            assert_eq!(state.admit(1, now), (DIFFERS, false));
            let (admission, is_repeated) = state.admit(1, later);
            assert_eq!(admission, DIFFERS);
            is_repeated
        };
        for (outcome, is_custom) in [
            (CheckResult::OtherCells, false),
            (CheckResult::OtherCells, true),
            (CheckResult::OtherOrder, true),
            (CheckResult::OtherColumns, false),
        ] {
            assert!(!is_repeated(&outcome, is_custom), "{outcome:?} {is_custom}");
        }
        assert!(is_repeated(&CheckResult::OtherColumns, true));
    }
}
