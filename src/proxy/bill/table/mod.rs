//! Table: a row for each client and operation, for as many clients as there is memory.
//!
//! The table has shards, each with its own lock. The hash of a user selects its shard, so that
//! requests of several users seldom wait for one another. In each shard a sketch
//! (`sketch.rs`) decides which clients have rows. The counts of other clients are added up, so no
//! count is lost.

mod client;
mod counts;
mod entry;
mod open;
mod operation;
mod shard;
mod sketch;
mod usage;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(super) use client::Client;
pub use client::Identity;
use client::{Keys, product};
pub(super) use counts::{Count, Counts};
pub use entry::{Entry, Outcome};
pub use open::{Behind, OpenAnswer, Progress};
use open::{Open, SLOW_AFTER};
pub(super) use operation::OperationName;
pub use operation::{Conditions, Operation, SelectorClass};
use parking_lot::Mutex;
use shard::{Asked, ClientRow, Shard, SlowClients};
use tokio::time::Instant;
pub(super) use usage::{ClientUsage, OperationUsage, Slow};

use crate::bill::cpu::CpuAccount;

/// The number of shards.
const SHARDS: usize = 16;
/// The most rows of clients in a shard.
const MAX_ROWS: usize = 64;
/// The fewest rows of clients in a shard, however little memory there is.
const MIN_ROWS: usize = 4;

/// The most open answers that are counted before the lock of their shard is released, so that
/// requests do not wait for all of them.
const ANSWERS_PER_LOCK: usize = 256;

/// The rows of the bill, and the open answers.
pub(super) struct Table {
    started: Instant,
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    /// Is held while open answers are counted. Two threads that count them at the same time would
    /// both add to the numbers of open answers.
    settling: Mutex<()>,
}

/// An open answer in the bill. Dropping it counts what is left, and the end. It must be dropped
/// after the answer has noted its last progress.
pub struct OpenHandle {
    table: Arc<Table>,
    shard: usize,
    key: usize,
}

// === impl Table ===

impl Table {
    /// Creates a table whose rows take about `bytes` bytes at most.
    pub(super) fn new(bytes: usize, started: Instant) -> Self {
        let rows = bytes / (SHARDS * Shard::ROW_BYTES);
        let rows = rows.clamp(MIN_ROWS, MAX_ROWS);
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(rows)));
        Self {
            started,
            hasher: RandomState::new(),
            shards: shards.collect(),
            settling: Mutex::new(()),
        }
    }

    /// Returns how long the table has existed.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Counts a request.
    pub(super) fn record(&self, entry: &Entry<'_>, now: Instant) {
        let (keys, counts) = (self.keys(entry), entry.counts());
        let mut shard = self.shards[shard_of(keys)].lock();
        add(&mut shard, keys, entry, &counts, self.age(now));
    }

    /// Counts a request whose answer is still being sent.
    pub(super) fn open(
        self: &Arc<Self>,
        entry: &Entry<'_>,
        answer: Arc<dyn OpenAnswer>,
        cpu: Option<Arc<CpuAccount>>,
        now: Instant,
    ) -> OpenHandle {
        let (keys, counts, at) = (self.keys(entry), entry.counts(), self.age(now));
        let is_hit = entry.outcome == Outcome::Hit;
        let index = shard_of(keys);
        let mut shard = self.shards[index].lock();
        let row = add(&mut shard, keys, entry, &counts, at);
        let operation = row.operation(keys.operation);
        let operation = operation.expect("the request was added to the row of its operation");
        let names = (Arc::clone(&row.client), operation);
        let key = shard
            .open
            .insert(Open::new(names, (answer, cpu), is_hit, at));
        drop(shard);
        OpenHandle {
            table: Arc::clone(self),
            shard: index,
            key,
        }
    }

    /// Counts what open answers have delivered since they were asked last.
    pub(super) fn settle(&self, now: Instant) {
        let _settling = self.settling.lock();
        for shard in &self.shards {
            settle(shard, None, self.age(now));
        }
    }

    /// Returns what each client has used that has a row or a slow answer, and the counts of clients
    /// without a row.
    pub(super) fn read(&self, now: Instant) -> (Vec<ClientUsage>, Counts) {
        let _settling = self.settling.lock();
        let at = self.age(now);
        let (mut usages, mut other) = (Vec::new(), Counts::default());
        for shard in &self.shards {
            let mut slow = settle(shard, Some(now), at);
            let shard = shard.lock();
            usages.extend(shard.usages(&mut slow, at));
            other += shard.other();
            // Clients whose rows have given way to others.
            usages.extend(slow.into_values().map(without_row));
        }
        (usages, other)
    }

    /// Returns the counts of all clients, with what open answers have delivered until `now`.
    pub(super) fn total(&self, now: Instant) -> Counts {
        self.settle(now);
        let mut total = Counts::default();
        for shard in &self.shards {
            shard.lock().add_to(&mut total);
        }
        total
    }

    /// Returns the names of the users that have rows.
    pub(super) fn users(&self) -> BTreeSet<String> {
        let mut users = BTreeSet::new();
        for shard in &self.shards {
            users.extend(shard.lock().users());
        }
        users
    }

    /// Returns the bytes that the table takes.
    pub(super) fn bytes(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().bytes()).sum()
    }

    /// Removes an open answer, and counts what is left, and its end.
    fn end(&self, shard: usize, key: usize, now: Instant) {
        let shard = &self.shards[shard];
        let mut open = shard.lock().open.remove(key);
        let progress = open.answer.progress();
        let at = self.age(now);
        let counts = open.ended(&progress, at);
        if counts.is_zero() {
            return;
        }
        let keys = open.keys();
        let (client, operation) = (open.client, open.operation);
        shard.lock().add(keys, || client, || operation, &counts, at);
    }

    fn keys(&self, entry: &Entry<'_>) -> Keys {
        let identity = entry.identity.bounded();
        let user = self.hasher.hash_one(identity);
        let client = match identity {
            Identity::User(_) => self.hasher.hash_one((identity, product(entry.user_agent))),
            // Without credentials, anyone could take the rows of all with many names of programs.
            Identity::Address(_) => user,
        };
        Keys {
            user,
            client,
            operation: self.hasher.hash_one(entry.operation),
        }
    }
}

/// Returns the usage of a client that has no row, but slow answers.
fn without_row((client, slow): (Arc<Client>, Slow)) -> ClientUsage {
    ClientUsage {
        client,
        age: Duration::ZERO,
        operations: Vec::new(),
        has_other_operations: false,
        total: Counts::default(),
        minute: Counts::default(),
        ten_minutes: Counts::default(),
        open_watches: 0,
        reasons: Vec::new(),
        slow: Some(slow),
    }
}

/// Returns the index of the shard of a user, which has all clients of the user.
fn shard_of(keys: Keys) -> usize {
    (keys.user % SHARDS as u64) as usize
}

/// Adds the request to the row of its client, or to that of its user's other programs.
fn add<'a>(
    shard: &'a mut Shard,
    keys: Keys,
    entry: &Entry<'_>,
    counts: &Counts,
    at: Duration,
) -> &'a mut ClientRow {
    let keys = shard.keys_of_rows(keys);
    let client = || {
        let identity = entry.identity.bounded();
        Arc::new(Client::new(keys, identity, entry.user_agent))
    };
    let operation = || Arc::new(OperationName::new(keys.operation, entry.operation));
    let row = shard.add(keys, client, operation, counts, at);
    if let Outcome::Forwarded { reason, .. } = entry.outcome {
        row.note_reason(reason);
    }
    row
}

/// Counts what the open answers of a shard have delivered, and returns those that are behind at
/// `now`. Holds the lock of the shard for [`ANSWERS_PER_LOCK`] answers at a time.
fn settle(shard: &Mutex<Shard>, now: Option<Instant>, at: Duration) -> SlowClients {
    let mut slow = SlowClients::new();
    let end = shard.lock().begin_settling();
    for first in (0..end).step_by(ANSWERS_PER_LOCK) {
        let asked = ask(shard, first..first + ANSWERS_PER_LOCK, now);
        shard.lock().settle(&asked, &mut slow, at);
    }
    slow
}

/// Asks the open answers with these keys what they have delivered, and how far they are behind at
/// `now`, without the lock of the shard.
fn ask(shard: &Mutex<Shard>, keys: Range<usize>, now: Option<Instant>) -> Vec<Asked> {
    let answers: Vec<_> = {
        let shard = shard.lock();
        let answers = keys.filter_map(|key| {
            let open = shard.open.get(key)?;
            Some((key, Arc::clone(&open.answer)))
        });
        answers.collect()
    };
    let asked = answers.into_iter().map(|(key, answer)| {
        let behind = now.and_then(|now| answer.behind(now));
        Asked {
            key,
            progress: answer.progress(),
            behind: behind.filter(|behind| behind.waited >= SLOW_AFTER),
            answer,
        }
    });
    asked.collect()
}

// === impl OpenHandle ===

impl Drop for OpenHandle {
    fn drop(&mut self) {
        self.table.end(self.shard, self.key, Instant::now());
    }
}

#[cfg(test)]
mod tests;
