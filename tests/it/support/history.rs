//! Says whether what clients saw can have been: a history of registers, each with one writer, and of
//! reads that all ask for the most recent state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// When something began and when its answer had come, since the history's begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
}

/// What a register is: absent, or a number.
pub(crate) type State = Option<u64>;

/// A write of one register; its writer waits for the answer before the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) span: Span,
    pub(crate) state: State,
    /// Unknown of a deletion.
    pub(crate) version: Option<u64>,
}

/// What a read showed.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) span: Span,
    /// Of the whole state that was shown; none of a single register.
    pub(crate) version: Option<u64>,
    pub(crate) seen: Vec<(usize, State)>,
}

/// Everything that was done. Registers are absent at first.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The writes of each register, in order.
    pub(crate) writes: Vec<Vec<Write>>,
    pub(crate) reads: Vec<Read>,
}

/// Registers, each with how many of its writes were seen at the least.
type SeenWrites = Vec<(usize, usize)>;

/// What must be known by those who begin now.
struct KnownState {
    /// How many writes of each register.
    writes: Vec<usize>,
    version: u64,
}

impl History {
    /// Checks that each read shows a state of a moment between its begin and its end, that no read
    /// shows less than one that had ended before it began, and that what a version is said of is
    /// the state at that version.
    ///
    /// # Errors
    /// What can't have been.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.reads.len()).collect();
        order.sort_by_key(|&read| self.reads[read].span.began);
        let mut known_state = KnownState {
            writes: vec![0; self.writes.len()],
            version: 0,
        };
        // Reads under way, by their ends, with what they showed at the least.
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

    /// How many writes of the register the read showed at the least.
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

/// Whether the first `count` writes are those up to `version`, as far as is known.
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

/// Two registers. The first: 1 at version 10, 2 at 20, then gone, then 3 at 40, each written in the
/// first half of ten seconds; the second is 7 at version 15.
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
