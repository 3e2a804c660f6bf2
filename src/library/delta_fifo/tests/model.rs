//! A random model: whatever happens to objects and consumers, the processed deltas of each object
//! are its history, and end in its present state.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::FutureExt;
use proptest::prelude::*;

use crate::delta_fifo::{Delta, DeltaFifo, Popped};

/// An object: its key and its version.
type Obj = (u8, u32);
type Fifo = DeltaFifo<u8, Obj>;

#[derive(Clone, Debug)]
enum Step {
    /// Adds or updates the object; `is_seen` is false if the watch misses the change.
    Write {
        key: u8,
        is_seen: bool,
    },
    Delete {
        key: u8,
        is_seen: bool,
    },
    Relist,
    Resync,
    Pop,
    /// The n-th of the changes in process succeeds, fails, or is lost with its consumer.
    Done(usize),
    Requeue(usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let change = || (0_u8..4, prop::bool::weighted(0.8));
    prop_oneof![
        8 => change().prop_map(|(key, is_seen)| Step::Write { key, is_seen }),
        4 => change().prop_map(|(key, is_seen)| Step::Delete { key, is_seen }),
        1 => Just(Step::Relist),
        1 => Just(Step::Resync),
        7 => Just(Step::Pop),
        4 => (0_usize..4).prop_map(Step::Done),
        2 => (0_usize..4).prop_map(Step::Requeue),
        1 => (0_usize..4).prop_map(Step::Drop),
    ]
}

struct Play<'a> {
    fifo: &'a Fifo,
    version: u32,
    /// The objects upstream, and those after the changes that the watch has seen.
    upstream: BTreeMap<u8, u32>,
    seen: BTreeMap<u8, u32>,
    in_process: Vec<Popped<'a, u8, Obj>>,
    /// The objects according to the deltas that the consumers processed.
    processed: BTreeMap<u8, u32>,
    /// The newest version that was processed for each object.
    newest: BTreeMap<u8, u32>,
}

impl Play<'_> {
    fn step(&mut self, step: Step) {
        match step {
            Step::Write { key, is_seen } => {
                self.version += 1;
                self.upstream.insert(key, self.version);
                if is_seen {
                    match self.seen.insert(key, self.version) {
                        None => self.fifo.add((key, self.version)),
                        Some(_) => self.fifo.update((key, self.version)),
                    }
                }
            }
            Step::Delete { key, is_seen } => {
                self.version += 1;
                self.upstream.remove(&key);
                if is_seen {
                    self.seen.remove(&key);
                    self.fifo.delete((key, self.version));
                }
            }
            Step::Relist => {
                self.seen.clone_from(&self.upstream);
                let objects = self.upstream.iter();
                self.fifo
                    .replace(objects.map(|(key, version)| (*key, *version)));
            }
            Step::Resync => self.fifo.resync(),
            Step::Pop => {
                let Some(popped) = self.fifo.pop().now_or_never().flatten() else {
                    return;
                };
                let twice = self
                    .in_process
                    .iter()
                    .any(|other| other.key() == popped.key());
                assert!(!twice, "{} is in process twice", popped.key());
                self.in_process.push(popped);
            }
            Step::Done(n) if n < self.in_process.len() => {
                let popped = self.in_process.remove(n);
                for delta in popped.deltas() {
                    self.process(*delta);
                }
                popped.done();
            }
            Step::Requeue(n) if n < self.in_process.len() => self.in_process.remove(n).requeue(),
            Step::Drop(n) if n < self.in_process.len() => drop(self.in_process.remove(n)),
            Step::Done(_) | Step::Requeue(_) | Step::Drop(_) => {}
        }
    }

    fn process(&mut self, delta: Delta<Obj>) {
        let (key, version) = *delta.object();
        let newest = self.newest.entry(key).or_default();
        assert!(
            version >= *newest,
            "{key} goes back from {newest}: {delta:?}"
        );
        *newest = version;
        match delta {
            Delta::Deleted(_) | Delta::DeletedFinalStateUnknown(_) => {
                let known = self.processed.remove(&key);
                assert!(known.is_some(), "{key} did not exist: {delta:?}");
            }
            Delta::Sync(_) => assert_eq!(self.processed.get(&key), Some(&version)),
            _ => {
                self.processed.insert(key, version);
            }
        }
    }

    fn finish(&mut self) {
        self.step(Step::Relist);
        loop {
            while !self.in_process.is_empty() {
                self.step(Step::Done(0));
            }
            self.step(Step::Pop);
            if self.in_process.is_empty() {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_processed_deltas_end_in_the_present_objects(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let fifo = Fifo::new(|object: &Obj| object.0);
        let mut play = Play {
            fifo: &fifo,
            version: 0,
            upstream: BTreeMap::new(),
            seen: BTreeMap::new(),
            in_process: Vec::new(),
            processed: BTreeMap::new(),
            newest: BTreeMap::new(),
        };
        for step in steps {
            play.step(step);
        }
        play.finish();
        assert_eq!(play.processed, play.upstream);
        let known: BTreeSet<Obj> = fifo.all_known().into_iter().collect();
        assert_eq!(known, play.upstream.clone().into_iter().collect());
        assert!(fifo.has_synced());
        assert!(fifo.is_empty());
    }
}
