//! Checks recorded reads for linearizability. A history consists of registers, each with one
//! writer, and of reads that all ask for the most recent state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// When a request was sent and when its answer was complete, since the start of the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
}

/// The value of a register: a number, or `None` if it is absent.
pub(crate) type State = Option<u64>;

/// A write of one register. The register has only one writer, which waits for each
/// answer before the next write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) span: Span,
    pub(crate) state: State,
    /// The resourceVersion of the write; `None` for a deletion, because the
    /// test does not know its version.
    pub(crate) version: Option<u64>,
}

/// A read, and the registers that its answer showed. Each object is a register, as a
/// linearizability checker calls a value that is read and written.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) span: Span,
    /// The resourceVersion of the list; `None` for the read of one register.
    pub(crate) version: Option<u64>,
    pub(crate) seen: Vec<(usize, State)>,
}

/// All writes and reads of a test. Every register is absent at first.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The writes of each register, in order.
    pub(crate) writes: Vec<Vec<Write>>,
    pub(crate) reads: Vec<Read>,
}

/// Pairs of a register and the number of its writes that a read has at least seen.
type SeenWrites = Vec<(usize, usize)>;

/// The least state that a read must show if it begins now.
struct KnownState {
    /// For each register, how many of its writes the read must have seen.
    writes: Vec<usize>,
    version: u64,
}

impl History {
    /// Checks three rules: each read shows a state that existed between its begin and its end; no
    /// read shows an older state than a read that had ended before it began; and a list with a
    /// version shows the state at exactly that version.
    ///
    /// # Errors
    /// The first read that breaks a rule, as text.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.reads.len()).collect();
        order.sort_by_key(|&read| self.reads[read].span.began);
        let mut known_state = KnownState {
            writes: vec![0; self.writes.len()],
            version: 0,
        };
        // Reads that have not ended when the current one begins: their end, their version, and the
        // least number of writes that they showed.
        let mut under_way: BinaryHeap<Reverse<(Duration, u64, SeenWrites)>> = BinaryHeap::new();
        for index in order {
            let read = &self.reads[index];
            while let Some(Reverse((ended, _, _))) = under_way.peek()
                && *ended <= read.span.began
            {
                let Some(Reverse((_, version, shown))) = under_way.pop() else {
                    break;
                };
                known_state.raise(version, &shown);
            }
            if read
                .version
                .is_some_and(|version| version < known_state.version)
            {
                return Err(format!("{read:?} after version {}", known_state.version));
            }
            let shown: Result<SeenWrites, String> = read
                .seen
                .iter()
                .map(|(register, state)| self.least_writes(read, *register, *state, &known_state))
                .collect();
            under_way.push(Reverse((
                read.span.ended,
                read.version.unwrap_or(0),
                shown?,
            )));
        }
        Ok(())
    }

    /// Returns the least number of writes of the register that makes the read's answer possible.
    fn least_writes(
        &self,
        read: &Read,
        register: usize,
        state: State,
        known_state: &KnownState,
    ) -> Result<(usize, usize), String> {
        let writes = &self.writes[register];
        let acknowledged = writes.partition_point(|write| write.span.ended <= read.span.began);
        let begun = writes.partition_point(|write| write.span.began <= read.span.ended);
        let least_writes = acknowledged.max(known_state.writes[register]);
        let mut possible = least_writes..=begun.max(least_writes);
        let found = possible.find(|&count| {
            let is = count.checked_sub(1).and_then(|last| writes[last].state) == state;
            is && read
                .version
                .is_none_or(|version| is_at(writes, count, version))
        });
        found.map(|count| (register, count)).ok_or_else(|| {
            let nearby = &writes[least_writes.saturating_sub(2)..(begun + 1).min(writes.len())];
            format!("register {register} is {state:?} in {read:?}, but at least {least_writes} writes were known of {nearby:?}")
        })
    }
}

/// Returns true if the first `count` writes can be exactly the writes up to `version`. Only writes
/// with a version in the history can show the contrary.
fn is_at(writes: &[Write], count: usize, version: u64) -> bool {
    let (before, after) = writes.split_at(count);
    let known = |write: &Write| write.version;
    before
        .iter()
        .rev()
        .find_map(known)
        .is_none_or(|last| last <= version)
        && after
            .iter()
            .find_map(known)
            .is_none_or(|next| next > version)
}

impl KnownState {
    fn raise(&mut self, version: u64, shown: &[(usize, usize)]) {
        self.version = self.version.max(version);
        for &(register, count) in shown {
            self.writes[register] = self.writes[register].max(count);
        }
    }
}

/// Checks reads against a fixed history of two registers. The first register is set to 1 at second
/// 10 with version 10, to 2 at second 20 with version 20, deleted at second 30, and set to 3 at
/// second 40 with version 40; the second is set to 7 at second 12 with version 15. Each write takes
/// five seconds. A read is a tuple of begin, end, version, and the values of both registers.
fn example(reads: &[(u64, u64, Option<u64>, State, State)]) -> Result<(), String> {
    let span = |began, ended| Span {
        began: Duration::from_secs(began),
        ended: Duration::from_secs(ended),
    };
    let write = |began, state, version| Write {
        span: span(began, began + 5),
        state,
        version,
    };
    let reads = reads
        .iter()
        .map(|&(began, ended, version, first, second)| Read {
            span: span(began, ended),
            version,
            seen: vec![(0, first), (1, second)],
        });
    History {
        writes: vec![
            vec![
                write(10, Some(1), Some(10)),
                write(20, Some(2), Some(20)),
                write(30, None, None),
                write(40, Some(3), Some(40)),
            ],
            vec![write(12, Some(7), Some(15))],
        ],
        reads: reads.collect(),
    }
    .check()
}

#[test]
fn possible_histories_pass_and_impossible_ones_fail() {
    let (one, two, three, seven) = (Some(1), Some(2), Some(3), Some(7));
    for (what, is_possible, reads) in [
        ("nothing yet", true, &[(0, 1, Some(5), None, None)][..]),
        ("a write under way", true, &[(11, 12, Some(12), one, None)]),
        ("or not yet there", true, &[(11, 12, Some(9), None, None)]),
        (
            "what was acknowledged",
            true,
            &[(18, 19, Some(16), one, seven)],
        ),
        ("a missed write", false, &[(16, 17, None, None, None)]),
        (
            "a write before it began",
            false,
            &[(16, 17, Some(16), two, seven)],
        ),
        ("a deletion", true, &[(36, 37, Some(31), None, seven)]),
        (
            "a missed deletion",
            false,
            &[(36, 37, Some(31), two, seven)],
        ),
        (
            "a deletion under way",
            true,
            &[(31, 32, Some(31), None, seven)],
        ),
        ("what came back", true, &[(46, 47, Some(41), three, seven)]),
        (
            "a version that is too low",
            false,
            &[(18, 19, Some(14), one, seven)],
        ),
        (
            "a version that is too high",
            false,
            &[(21, 22, Some(21), one, seven)],
        ),
        (
            "another moment each",
            false,
            &[(11, 21, Some(12), one, seven)],
        ),
        (
            "what was seen under way",
            true,
            &[(20, 21, None, two, seven), (22, 23, None, two, seven)],
        ),
        (
            "what was seen is gone",
            false,
            &[(20, 21, None, two, seven), (22, 23, None, one, seven)],
        ),
        (
            "at the same time",
            true,
            &[(20, 22, None, two, seven), (21, 23, None, one, seven)],
        ),
        (
            "an older version",
            false,
            &[
                (26, 27, Some(25), two, seven),
                (28, 29, Some(24), two, seven),
            ],
        ),
    ] {
        assert_eq!(
            example(reads).is_ok(),
            is_possible,
            "{what}: {:?}",
            example(reads)
        );
    }
}
