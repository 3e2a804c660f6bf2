//! Account: the bytes that are held for one client connection.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Buffer, Buffers, Client, MemoryKind, MinimumRate, QUANTUM, Shared};

/// Bytes of a connection's own state and buffers, charged with its first request.
const CONNECTION_BYTES: u64 = 16 << 10;

/// The bytes that are held for one connection, and what the ledger may drop to free some of them.
pub struct Account {
    id: u64,
    ledger: Arc<Shared>,
    state: Mutex<State>,
    buffers: Arc<Buffers>,
    client: OnceLock<Arc<Client>>,
    is_closing: AtomicBool,
    /// The connection's task, to be woken when the connection must be closed.
    task: AtomicWaker,
}

#[derive(Default)]
struct State {
    /// Bytes that are leased from the ledger. They are never less than the sum of `used`.
    leased: u64,
    /// Bytes of all charges, by kind.
    used: [u64; MemoryKind::COUNT],
    held: HashMap<u64, Arc<Registered>>,
    next_held: u64,
    /// The largest number of bodies with a minimum rate since `peak_since`, and in the period
    /// before it.
    peaks: (usize, usize),
    peak_since: Option<Instant>,
}

/// Bytes of one kind that are charged to an account until this value is dropped.
pub struct Charge {
    account: Arc<Account>,
    kind: MemoryKind,
    bytes: u64,
}

/// The limit that refused a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Short {
    /// The limit of the connection.
    #[error("the connection holds too much memory")]
    Connection,
    /// The limit of the process.
    #[error("the process holds too much memory")]
    Process,
}

/// Something that waits for a reader. The ledger may drop it at any time.
pub trait Revoke: Send + Sync {
    /// Drops what is held. The reader gets an error at its next read.
    fn revoke(&self);

    /// Drops what is held, because the reader is too slow. The default does what
    /// [`Revoke::revoke`] does.
    fn revoke_slow(&self) {
        self.revoke();
    }

    /// Returns true if the reader is slower than `rate`. The default is false.
    fn is_too_slow(&self, _now: Instant, _rate: MinimumRate) -> bool {
        false
    }

    /// Returns true if bytes wait for the reader and a minimum rate applies to it. The default is
    /// false: the reader may be arbitrarily slow.
    fn is_paced(&self) -> bool {
        false
    }

    /// Returns the bytes that the API server may have sent and that wait for the reader at `now`.
    /// The default is 0.
    fn unread(&self, _now: Instant) -> u64 {
        0
    }
}

/// The age of a snapshot, as a count of the bytes that its cache had replaced before the snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotAge {
    replaced: Arc<AtomicU64>,
    replaced_before: u64,
}

/// Something that the ledger may drop, and the snapshot that it holds.
pub(super) struct Registered {
    pub(super) held: Box<dyn Revoke>,
    pub(super) snapshot: Option<SnapshotAge>,
    /// True if `held` was already dropped. The entry stays until its owner notices.
    is_revoked: AtomicBool,
}

/// Keeps something registered with its account until this value is dropped.
pub struct Registration {
    account: Arc<Account>,
    key: u64,
}

/// Waits until the ledger closes the connection of `account`; never completes without an account.
/// Only for the task that owns the connection after an upgrade.
pub async fn closed(account: Option<&Account>) {
    match account {
        Some(account) => {
            let mut is_registered = false;
            poll_fn(|cx| account.poll_close(cx, &mut is_registered)).await;
        }
        None => pending().await,
    }
}

// === impl Account ===

impl Account {
    pub(super) fn new(id: u64, ledger: Arc<Shared>) -> Self {
        Self {
            id,
            ledger,
            state: Mutex::default(),
            buffers: Arc::default(),
            client: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    /// Charges `bytes` until the returned value is dropped.
    ///
    /// # Errors
    ///
    /// If the bytes do not fit into the limit of the connection or of the process.
    pub fn charge(self: &Arc<Self>, kind: MemoryKind, bytes: u64) -> Result<Charge, Short> {
        self.add(kind, bytes)?;
        Ok(Charge {
            account: Arc::clone(self),
            kind,
            bytes,
        })
    }

    /// Registers `held` so that the ledger may drop it. `snapshot` is the age of the snapshot that
    /// `held` holds in memory, if there is one.
    pub fn register(
        self: &Arc<Self>,
        held: impl Revoke + 'static,
        snapshot: Option<SnapshotAge>,
    ) -> Registration {
        let entry = Arc::new(Registered {
            held: Box::new(held),
            snapshot,
            is_revoked: AtomicBool::new(false),
        });
        let mut state = self.state.lock();
        let key = state.next_held;
        state.next_held += 1;
        state.held.insert(key, entry);
        drop(state);
        Registration {
            account: Arc::clone(self),
            key,
        }
    }

    /// Returns the sizes of the connection's buffers. The connection sets them.
    pub fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Sets the client of the connection. Only the first call has an effect.
    pub fn set_client(&self, client: Client) {
        self.client.get_or_init(|| Arc::new(client));
    }

    /// Returns the client of the connection, or `None` before the connection can take requests.
    pub fn client(&self) -> Option<&Arc<Client>> {
        self.client.get()
    }

    /// Returns the bytes of all charges and buffers.
    pub fn held_bytes(&self) -> u64 {
        let buffers = Buffer::KINDS.map(|kind| self.buffers.of_kind(kind));
        self.total() + buffers.iter().sum::<u64>()
    }

    /// Returns the bytes of output that the client has not taken.
    pub fn unread_bytes(&self) -> u64 {
        self.buffers.of_kind("output")
    }

    /// Returns ready when the connection must be closed. `is_registered` notes whether the task of
    /// `cx` will be woken then. The caller sets it to false before the first call, and passes it to
    /// all calls, which must come from the same task.
    pub fn poll_close(&self, cx: &Context<'_>, is_registered: &mut bool) -> Poll<()> {
        if !std::mem::replace(is_registered, true) {
            self.task.register(cx.waker());
        }
        if self.is_closing.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.task.wake();
    }

    /// Returns true if the connection must be closed.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bodies that needed a minimum rate concurrently in the last
    /// `period`, or up to twice as long. `count` is their current number.
    pub(super) fn peak_of_paced(&self, count: usize, period: Duration, now: Instant) -> usize {
        let mut state = self.state.lock();
        let since = *state.peak_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= period {
            state.peaks = (0, state.peaks.0);
            state.peak_since = Some(now);
        }
        state.peaks.0 = state.peaks.0.max(count);
        state.peaks.0.max(state.peaks.1)
    }

    pub(super) fn total(&self) -> u64 {
        self.state.lock().total()
    }

    pub(super) fn used(&self, kind: MemoryKind) -> u64 {
        self.state.lock().used[kind as usize]
    }

    /// Returns what is registered and was not dropped yet.
    pub(super) fn registered(&self) -> Vec<Arc<Registered>> {
        let state = self.state.lock();
        let is_held = |entry: &&Arc<Registered>| !entry.is_revoked.load(Ordering::Relaxed);
        state.held.values().filter(is_held).cloned().collect()
    }

    fn add(&self, kind: MemoryKind, bytes: u64) -> Result<(), Short> {
        if kind == MemoryKind::List {
            self.ledger.add_to_lists(bytes)?;
        }
        let mut state = self.state.lock();
        let own = match state.used[MemoryKind::Connection as usize] {
            0 => CONNECTION_BYTES,
            _ => 0,
        };
        let more = bytes.saturating_add(own);
        let added = state.lease(more, &self.ledger);
        match added {
            Ok(()) => {
                state.used[MemoryKind::Connection as usize] += own;
                state.used[kind as usize] += bytes;
            }
            Err(_) if kind.is_optional() => {
                if kind == MemoryKind::List {
                    self.ledger.subtract_from_lists(bytes);
                }
            }
            Err(short) => {
                let total = state.total().saturating_add(more);
                self.ledger.note_refusal(short, total);
            }
        }
        added
    }

    fn subtract(&self, kind: MemoryKind, bytes: u64) {
        if kind == MemoryKind::List {
            self.ledger.subtract_from_lists(bytes);
        }
        let mut state = self.state.lock();
        state.used[kind as usize] -= bytes;
        let spare = state.give_back();
        drop(state);
        if spare > 0 {
            self.ledger.give_back(spare);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.ledger.give_back(self.state.get_mut().leased);
        self.ledger.accounts.lock().remove(&self.id);
        self.ledger.open.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl State ===

impl State {
    fn total(&self) -> u64 {
        self.used.iter().sum()
    }

    /// Leases as much as is missing for `bytes` in addition to those in use.
    fn lease(&mut self, bytes: u64, ledger: &Shared) -> Result<(), Short> {
        let total = self.total().checked_add(bytes);
        let total = total.filter(|total| *total <= ledger.limits.connection_memory);
        let total = total.ok_or(Short::Connection)?;
        if let Some(missing) = total.checked_sub(self.leased).filter(|bytes| *bytes > 0) {
            let quanta = missing.next_multiple_of(QUANTUM);
            ledger.lease(quanta, total)?;
            self.leased += quanta;
        }
        Ok(())
    }

    /// Takes what the account does not need out of its lease. A busy connection retains a quantum
    /// that it does not use, so that not every request changes the ledger. An idle connection
    /// retains no such quantum.
    fn give_back(&mut self) -> u64 {
        let total = self.total();
        let is_idle = total <= CONNECTION_BYTES;
        let kept = total.next_multiple_of(QUANTUM) + if is_idle { 0 } else { QUANTUM };
        let spare = self.leased.saturating_sub(kept);
        self.leased -= spare;
        spare
    }
}

// === impl Charge ===

impl Charge {
    /// Returns the bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` instead of the bytes before.
    ///
    /// # Errors
    ///
    /// If the bytes do not fit into a limit. The charge is unchanged then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Short> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            self.account.add(self.kind, more)?;
        } else {
            self.account.subtract(self.kind, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.subtract(self.kind, self.bytes);
    }
}

// === impl Short ===

impl Short {
    /// Returns the value of the metric label `limit`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Process => "process",
        }
    }
}

// === impl SnapshotAge ===

impl SnapshotAge {
    /// Creates the age of a snapshot that was taken when its cache had replaced `replaced_before`
    /// bytes. `replaced` counts the bytes that the cache has replaced.
    pub fn new(replaced: Arc<AtomicU64>, replaced_before: u64) -> Self {
        Self {
            replaced,
            replaced_before,
        }
    }

    /// Returns an upper limit of the bytes that only this snapshot and newer ones of its cache hold
    /// in memory.
    pub(super) fn cost(&self) -> u64 {
        let replaced = self.replaced.load(Ordering::Relaxed);
        replaced.saturating_sub(self.replaced_before)
    }

    /// Returns an identifier of the snapshot's cache.
    pub(super) fn cache(&self) -> usize {
        Arc::as_ptr(&self.replaced).addr()
    }
}

// === impl Registered ===

impl Registered {
    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.held.revoke();
    }

    pub(super) fn revoke_slow(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        self.held.revoke_slow();
    }

    /// Returns the source of what the entry costs at `now`, and the cost: those of its snapshot, or
    /// else itself and the bytes of an answer of the API server. Returns `None` if it costs nothing.
    pub(super) fn cost(&self, now: Instant) -> Option<(usize, u64)> {
        if let Some(snapshot) = &self.snapshot {
            return Some((snapshot.cache(), snapshot.cost()));
        }
        let unread = self.held.unread(now);
        (unread > 0).then_some((std::ptr::from_ref(self).addr(), unread))
    }
}

// === impl Registration ===

impl Drop for Registration {
    fn drop(&mut self) {
        let entry = self.account.state.lock().held.remove(&self.key);
        // Dropping an entry may run any code, so the lock is released first.
        drop(entry);
    }
}
