//! Shard: the rows of some clients, and their open answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::client::{Client, Keys};
use super::counts::{Counts, MINUTE, Windows};
use super::open::{Behind, Open, OpenAnswer, Progress};
use super::operation::OperationName;
use super::sketch::SpaceSaving;
use super::usage::{ClientUsage, OperationUsage, Slow};

/// The most programs of one user that have rows of their own, so that a user with many names of
/// programs does not take the rows of others.
const MAX_PROGRAMS: usize = 8;
/// The most operations of a client that have rows.
const MAX_OPERATIONS: usize = 12;
/// The weights of rows are halved once in this time, so that rows of clients that have become quiet
/// give way to new ones.
const HALF_LIFE: Duration = MINUTE;
/// The names of operations that are shared by the rows of a shard. Discovery knows the resources, so
/// there are seldom more.
const MAX_NAMES: usize = 1_024;
/// Bytes of the texts of a name, and of its place among the others.
const NAME_OVERHEAD: usize = 128;

/// The rows of some of the clients.
pub(super) struct Shard {
    clients: SpaceSaving<ClientRow>,
    /// The most programs of one user that have rows of their own.
    programs: usize,
    /// The counts of clients without a row.
    other: Counts,
    /// How often the weights were halved.
    halvings: u64,
    /// The names of operations, by their keys, so that clients and open answers share them.
    names: HashMap<u64, Arc<OperationName>>,
    pub(super) open: Slab<Open>,
}

/// An open answer that was asked without the lock of the shard.
pub(super) struct Asked {
    /// The key in [`Shard::open`]. Another answer may have it by now.
    pub(super) key: usize,
    pub(super) answer: Arc<dyn OpenAnswer>,
    pub(super) progress: Progress,
    /// How far the reader is behind, if it is slow.
    pub(super) behind: Option<Behind>,
}

/// Answers that are behind, by the key of their client.
pub(super) type SlowClients = HashMap<u64, (Arc<Client>, Slow)>;

pub(super) struct ClientRow {
    pub(super) client: Arc<Client>,
    /// The counts of all operations.
    windows: Windows,
    /// The watches that were open when the bill last asked them.
    open: u64,
    operations: SpaceSaving<OperationRow>,
    /// True if there were operations whose rows have given way to others.
    has_other_operations: bool,
    reasons: Vec<(&'static str, u64)>,
}

struct OperationRow {
    operation: Arc<OperationName>,
    windows: Windows,
    /// The answers that were open when the bill last asked them.
    open: u64,
}

// === impl Shard ===

impl Shard {
    /// The most bytes that the row of one client takes, with names of usual length and all reasons.
    pub(super) const ROW_BYTES: usize = size_of::<ClientRow>()
        + MAX_OPERATIONS * (size_of::<OperationRow>() + 2 * size_of::<u64>())
        + size_of::<Client>()
        + 1_024;

    /// Creates a shard with at most `rows` rows.
    pub(super) fn new(rows: usize) -> Self {
        Self {
            clients: SpaceSaving::new(rows),
            programs: MAX_PROGRAMS.min(rows / 2),
            other: Counts::default(),
            halvings: 0,
            names: HashMap::new(),
            open: Slab::new(),
        }
    }

    /// Returns the keys of the rows for a request with `keys`. If the client has no row, and its user
    /// has rows for enough programs, that is the row of the user's other programs.
    pub(super) fn keys_of_rows(&mut self, keys: Keys) -> Keys {
        if self.clients.get_mut(keys.client).is_some() {
            return keys;
        }
        let rows = self.clients.values().iter();
        let own = rows.filter(|row| row.client.user_key == keys.user);
        match own.count() < self.programs {
            true => keys,
            false => keys.of_all_programs(),
        }
    }

    /// Adds `counts` to the rows with `keys`. `client` and `operation` name rows that do not exist.
    pub(super) fn add(
        &mut self,
        keys: Keys,
        client: impl FnOnce() -> Arc<Client>,
        operation: impl FnOnce() -> Arc<OperationName>,
        counts: &Counts,
        at: Duration,
    ) -> &mut ClientRow {
        self.halve(at);
        let weight = counts.weight();
        let create = || ClientRow::new(client(), at);
        let (row, replaced) = self.clients.add(keys.client, weight, create);
        if let Some(replaced) = replaced {
            self.other += &replaced.windows.total();
        }
        let names = &mut self.names;
        let operation = || shared_name(names, keys.operation, operation);
        row.add(keys.operation, operation, weight, counts, at);
        row
    }

    /// Sets the numbers of open answers to 0, so that calls of [`Shard::settle`] can count them.
    /// Returns a number that is larger than the key of each open answer.
    pub(super) fn begin_settling(&mut self) -> usize {
        if self.open.len() < self.open.capacity() / 4 {
            // The keys of open answers stay, so a new one may keep much of the capacity.
            self.open.shrink_to_fit();
        }
        for row in self.clients.values_mut() {
            row.open = 0;
            for operation in row.operations.values_mut() {
                operation.open = 0;
            }
        }
        self.open.capacity()
    }

    /// Counts what open answers have delivered, and how many each client has. Adds those that are
    /// behind to `slow`. Answers that have ended since they were asked are skipped: their end has
    /// counted everything.
    pub(super) fn settle(&mut self, asked: &[Asked], slow: &mut SlowClients, at: Duration) {
        for asked in asked {
            let Some(open) = self.open.get_mut(asked.key) else {
                continue;
            };
            if !Arc::ptr_eq(&open.answer, &asked.answer) {
                continue;
            }
            let counts = open.uncounted(&asked.progress);
            let (client, operation) = (Arc::clone(&open.client), Arc::clone(&open.operation));
            let (keys, is_watch) = (open.keys(), open.operation.verb == "watch");
            if let Some(behind) = asked.behind {
                note_slow(slow, &client, &operation, behind);
            }
            if !counts.is_zero() {
                self.add(keys, || client, || operation, &counts, at);
            }
            if let Some(row) = self.clients.get_mut(keys.client) {
                row.note_open(keys.operation, is_watch);
            }
        }
    }

    /// Returns what each client with a row has used, and moves its slow answers out of `slow`.
    pub(super) fn usages(&self, slow: &mut SlowClients, at: Duration) -> Vec<ClientUsage> {
        let rows = self.clients.values().iter();
        let usages = rows.map(|row| {
            let slow = slow.remove(&row.client.key);
            row.usage(slow.map(|(_, slow)| slow), at)
        });
        usages.collect()
    }

    /// Returns the names of the users that have rows. A user may have several.
    pub(super) fn users(&self) -> Vec<String> {
        let rows = self.clients.values().iter();
        let users = rows.map(|row| row.client.user.clone());
        users.filter(|user| !user.is_empty()).collect()
    }

    /// Returns the counts of clients without a row.
    pub(super) fn other(&self) -> &Counts {
        &self.other
    }

    /// Adds the counts of all clients to `total`.
    pub(super) fn add_to(&self, total: &mut Counts) {
        *total += &self.other;
        for row in self.clients.values() {
            *total += &row.windows.total();
        }
    }

    /// Returns the bytes that rows and open answers take, without the clients of open answers that
    /// have no row.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.clients.values().iter();
        self.clients.bytes()
            + rows.map(ClientRow::bytes).sum::<usize>()
            + self.names.len() * (size_of::<OperationName>() + NAME_OVERHEAD)
            + self.open.capacity() * size_of::<Open>()
    }

    fn halve(&mut self, at: Duration) {
        let halvings = at.as_secs() / HALF_LIFE.as_secs();
        let due = halvings.saturating_sub(self.halvings);
        if due == 0 {
            return;
        }
        self.halvings = halvings;
        let factor = 0.5_f64.powi(i32::try_from(due).unwrap_or(i32::MAX));
        self.clients.scale(factor);
        for row in self.clients.values_mut() {
            row.operations.scale(factor);
        }
    }
}

// === impl ClientRow, OperationRow ===

impl ClientRow {
    /// Creates the row of a client, which begins at the time `since` after the start of the bill.
    fn new(client: Arc<Client>, since: Duration) -> Self {
        Self {
            client,
            windows: Windows::new(since),
            open: 0,
            operations: SpaceSaving::new(MAX_OPERATIONS),
            has_other_operations: false,
            reasons: Vec::new(),
        }
    }

    fn add(
        &mut self,
        key: u64,
        operation: impl FnOnce() -> Arc<OperationName>,
        weight: f64,
        counts: &Counts,
        at: Duration,
    ) {
        let create = || OperationRow {
            operation: operation(),
            windows: Windows::new(at),
            open: 0,
        };
        self.windows.add(counts, at);
        let (row, replaced) = self.operations.add(key, weight, create);
        row.windows.add(counts, at);
        self.has_other_operations |= replaced.is_some();
    }

    /// Counts an answer that is open. The row of its operation may have given way to another.
    fn note_open(&mut self, operation: u64, is_watch: bool) {
        self.open += u64::from(is_watch);
        if let Some(row) = self.operations.get_mut(operation) {
            row.open += 1;
        }
    }

    /// Counts a request that was forwarded. `reason` is one of the few metric labels.
    pub(super) fn note_reason(&mut self, reason: &'static str) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, requests)) => *requests += 1,
            None => self.reasons.push((reason, 1)),
        }
    }

    /// Returns the name of the operation with `key`, if it has a row.
    pub(super) fn operation(&mut self, key: u64) -> Option<Arc<OperationName>> {
        let row = self.operations.get_mut(key)?;
        Some(Arc::clone(&row.operation))
    }

    fn usage(&self, slow: Option<Slow>, at: Duration) -> ClientUsage {
        let operations = self.operations.values().iter();
        ClientUsage {
            client: Arc::clone(&self.client),
            age: at.saturating_sub(self.windows.since()),
            operations: operations.map(|row| row.usage(at)).collect(),
            has_other_operations: self.has_other_operations,
            total: self.windows.total(),
            minute: self.windows.minute(at),
            ten_minutes: self.windows.ten_minutes(at),
            open_watches: self.open,
            reasons: self.reasons.clone(),
            slow,
        }
    }

    fn bytes(&self) -> usize {
        let reasons = self.reasons.capacity() * size_of::<(&str, u64)>();
        self.client.bytes() + self.operations.bytes() + reasons
    }
}

impl OperationRow {
    fn usage(&self, at: Duration) -> OperationUsage {
        OperationUsage {
            operation: Arc::clone(&self.operation),
            open: self.open,
            total: self.windows.total(),
            minute: self.windows.minute(at),
            ten_minutes: self.windows.ten_minutes(at),
        }
    }
}

/// Returns the name with `key` among `names`, or the one that `create` returns.
fn shared_name(
    names: &mut HashMap<u64, Arc<OperationName>>,
    key: u64,
    create: impl FnOnce() -> Arc<OperationName>,
) -> Arc<OperationName> {
    if let Some(name) = names.get(&key) {
        return Arc::clone(name);
    }
    if names.len() >= MAX_NAMES {
        names.retain(|_, name| Arc::strong_count(name) > 1);
    }
    let name = create();
    if names.len() < MAX_NAMES {
        names.insert(key, Arc::clone(&name));
    }
    name
}

/// Adds an answer of `client` that is behind.
fn note_slow(
    slow: &mut SlowClients,
    client: &Arc<Client>,
    operation: &Arc<OperationName>,
    behind: Behind,
) {
    let (_, noted) = slow.entry(client.key).or_insert_with(|| {
        let first = Slow::new(operation, behind);
        (Arc::clone(client), first)
    });
    noted.note(operation, behind);
}
