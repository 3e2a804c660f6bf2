//! The ledger of the bytes that are held for readers and callers. Each connection has a limit, and
//! so has the process. The caches are not included.
//!
//! Two kinds of memory are held for a client that reads slowly:
//!
//! - Bytes that cannot be taken back: the state of a stream, and the chunks that the HTTP library
//!   has taken from a body. They are charged to the connection's [`Account`] before they are held.
//!   An account leases its bytes from the ledger in quanta, so most charges change no counter that
//!   connections share. Delivering an event charges nothing. If a limit is reached, the charge is
//!   refused, and the client gets 429.
//! - Bodies and snapshots that wait for the reader. They implement [`Revoke`] and are registered,
//!   so that the ledger can drop them even if their body is not polled: because the reader is too
//!   slow, or to free memory.
//!
//! A snapshot shares its objects with the cache and with other snapshots. It costs the objects that
//! the cache replaced after the snapshot was taken. Of two snapshots of one cache, the older one's
//! cost includes the newer one's cost. So the bytes that were replaced after a cache's oldest
//! snapshot are an upper bound of what all its snapshots cost together. The ledger adds up this
//! bound over the caches, and drops the snapshots that cost most until the sum is within its limit.
//! As long as few objects change, neither the number of readers nor their age matters.
//!
//! An event and its frames belong to the event log, which has its own limit. Once the log has
//! evicted the event, the event counts here as long as a watch, or the HTTP library, holds the
//! event or a frame of it. It counts once, however many clients hold it. Delivering an event
//! changes no counter.
//!
//! An answer of the API server that waits for its reader costs what the API server may have sent
//! before its stream was full. Such answers are counted with the snapshots, and dropped like
//! snapshots.
//!
//! The [`Buffers`] of a connection hold output that its client has not taken, the head of a request
//! that is not complete, and bodies of requests. Nothing can be refused before they fill, and a
//! slow client is no reason to close its connection. So buffers are measured, and leave the charges
//! their room. If all buffers together hold too much, the ledger closes the connections with the
//! largest buffers.
//!
//! A quarter of the process's limit is reserved for accounts that hold little, in equal shares. So
//! a few greedy connections cannot use up the memory of all others. If a charge of such a small
//! account was refused, or if charges were refused over two sweeps, the ledger closes the
//! connection with the largest charge. If no charge was refused, but events have used up the
//! memory, it closes the connection with the largest charge for watches.
//!
//! Memory that several clients share, such as compressed lists, is not charged to an account. Each
//! kind of shared memory has a [`Budget`], which is smaller if the process's limit is small.

mod account;
mod budget;
mod buffers;
mod charged_bytes;
mod client;
mod growing_charge;
mod kind;
mod limits;
mod machine;
mod pace;
mod sweep;
mod watch_meter;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use account::Registered;
pub use account::{Account, Charge, Registration, Revoke, Short, SnapshotAge, closed};
pub use budget::{Budget, sample_kept};
pub use buffers::{Buffer, Buffers};
pub use charged_bytes::charged;
pub use client::{Client, ClientWatch, ListedWatch, RequestInProgress, Sender};
pub use growing_charge::GrowingCharge;
pub use kind::MemoryKind;
use kubefan_core::telemetry::Registry;
pub use limits::Limits;
pub use machine::{available_memory, resident_memory};
pub use pace::{MinimumRate, Pace};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use sweep::{largest, to_close, to_drop};
use tokio::time::{Instant, MissedTickBehavior, interval};
pub use watch_meter::WatchMeter;

/// Bytes that an account leases at a time.
const QUANTUM: u64 = 16 << 10;
/// Time between two sweeps. What caches replace in this time may exceed the limit.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// The part of the process's limit, as a divisor, that may be used by what is measured and not
/// charged, even if nothing else is held.
const MEASURED_SHARE: u64 = 2;
/// The part of the process's limit, as a divisor, that only accounts within their fair share may
/// use. Buffers may hold as much, whatever is charged.
const RESERVED_SHARE: u64 = 4;
/// Upper limit of all charges of [`MemoryKind::List`] together, within [`Limits::share`]. Such
/// charges only save work: a list is converted twice if its items can't be held.
const LISTS_BYTES: usize = 64 << 20;
/// Least fair share of an account: a connection with a few requests.
const MIN_FAIR_SHARE: u64 = 4 * QUANTUM;

/// The bytes that the process holds for its readers and callers. Cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
}

/// The state that accounts and the sweeper share.
struct Shared {
    limits: Limits,
    /// Sum of the bytes that all accounts have leased; at most `limits.memory`.
    leased: AtomicU64,
    /// Sum of the charges of [`MemoryKind::List`].
    lists: AtomicU64,
    /// What all snapshots cost, according to the last sweep.
    snapshots: AtomicU64,
    /// Bytes of the API server's answers that wait for readers, according to the last sweep.
    forwarded: AtomicU64,
    /// Returns the bytes of the events that no log contains any more, but that are still held.
    evicted: Box<dyn Fn() -> u64 + Send + Sync>,
    /// What `evicted` returned at the last sweep.
    last_evicted: AtomicU64,
    /// Bytes of the events that only readers hold: the lower of the results of `evicted` at the
    /// last two sweeps. A log that is dropped needs a moment to free its events, although no reader
    /// holds them.
    events: AtomicU64,
    /// True if the process's limit refused a charge since the last sweep.
    was_short: AtomicBool,
    /// True if the process's limit refused a charge of an account within its fair share since the
    /// last sweep.
    was_unfair: AtomicBool,
    accounts: Mutex<HashMap<u64, Weak<Account>>>,
    /// The number of `accounts`.
    open: AtomicU64,
    next_account: AtomicU64,
    /// The metric of refused charges.
    refused: IntCounterVec,
    /// The metric of what sweeps dropped.
    dropped: IntCounterVec,
}

/// The result of one sweep. The reasons are the values of the metric label `why`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Bodies that were dropped because their reader is too slow.
    pub slow: u64,
    /// Bodies and snapshots that were dropped because memory was short.
    pub memory: u64,
    /// Connections that were closed because memory was short.
    pub connections: u64,
}

// === impl Ledger ===

impl Ledger {
    /// Creates a ledger whose metrics no registry has. Its readers hold no events.
    pub fn new(limits: Limits) -> Self {
        Self::with_metrics(limits, || 0, &Registry::new())
    }

    /// Creates a ledger, and registers its metrics in `registry`. `evicted` returns the bytes of
    /// the events that no log contains any more, but that are still held.
    pub fn with_metrics(
        limits: Limits,
        evicted: impl Fn() -> u64 + Send + Sync + 'static,
        registry: &Registry,
    ) -> Self {
        let shared = Shared {
            limits,
            leased: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            snapshots: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            evicted: Box::new(evicted),
            last_evicted: AtomicU64::new(0),
            events: AtomicU64::new(0),
            was_short: AtomicBool::new(false),
            was_unfair: AtomicBool::new(false),
            accounts: Mutex::default(),
            open: AtomicU64::new(0),
            next_account: AtomicU64::new(0),
            refused: registry.counter_vec(
                "kubefan_reader_memory_refused_total",
                "Times that memory for a reader or caller was refused, by the limit that was \
                 reached (connection, process).",
                &["limit"],
            ),
            dropped: registry.counter_vec(
                "kubefan_reader_memory_dropped_total",
                "Bodies and snapshots that were dropped before their reader took them, because the \
                 reader was too slow (slow) or memory was short (memory), and connections closed \
                 because memory was short (connection).",
                &["why"],
            ),
        };
        let ledger = Self {
            shared: Arc::new(shared),
        };
        ledger.sample_at_scrapes(registry);
        ledger
    }

    fn sample_at_scrapes(&self, registry: &Registry) {
        let scraped = self.clone();
        registry.on_scrape(move |samples| {
            for (kind, bytes) in scraped.usage() {
                samples.gauge(
                    "kubefan_reader_memory_bytes",
                    "Bytes held for readers and callers, by kind; of snapshots, an upper bound of \
                     what they cost beyond the cache, as of the last sweep.",
                    &[("kind", kind)],
                    bytes as f64,
                );
            }
            samples.gauge(
                "kubefan_reader_memory_limit_bytes",
                "Upper limit of the bytes held for readers and callers; with the buffers of connections, a quarter more.",
                &[],
                scraped.shared.limits.memory as f64,
            );
        });
    }

    /// Opens the account of a new connection. The account is closed when the last clone is dropped.
    pub fn open_account(&self) -> Arc<Account> {
        let id = self.shared.next_account.fetch_add(1, Ordering::Relaxed);
        let account = Arc::new(Account::new(id, Arc::clone(&self.shared)));
        let weak = Arc::downgrade(&account);
        self.shared.accounts.lock().insert(id, weak);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        account
    }

    /// Returns the bytes that are held now, with the name of their kind.
    pub fn usage(&self) -> Vec<(&'static str, u64)> {
        let accounts = self.shared.accounts();
        let sum = |kind| accounts.iter().map(|account| account.used(kind)).sum();
        let charged = MemoryKind::ALL.map(|(kind, name)| (name, sum(kind)));
        let mut usage = charged.to_vec();
        let measured = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        usage.push(("snapshot", measured(&self.shared.snapshots)));
        usage.push(("forwarded", measured(&self.shared.forwarded)));
        usage.push(("event", measured(&self.shared.events)));
        for kind in Buffer::KINDS {
            let of_accounts = accounts
                .iter()
                .map(|account| account.buffers().of_kind(kind));
            usage.push((kind, of_accounts.sum()));
        }
        usage
    }

    /// Returns the accounts that are open now, in no order.
    pub fn accounts(&self) -> Vec<Arc<Account>> {
        self.shared.accounts()
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Returns the sum of the bytes that accounts have leased.
    pub fn leased(&self) -> u64 {
        self.shared.leased.load(Ordering::Relaxed)
    }

    /// Sweeps every second. Never completes.
    pub async fn run(self) {
        let mut ticks = interval(SWEEP_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_short = false;
        loop {
            ticks.tick().await;
            let swept = self.sweep(Instant::now(), &mut was_short);
            if swept != Swept::default() {
                let (slow, memory, connections) = (swept.slow, swept.memory, swept.connections);
                tracing::debug!(slow, memory, connections, "dropped what readers held");
            }
        }
    }

    /// Drops what is held for readers that are too slow. Then drops snapshots and forwarded answers
    /// until their cost is within the limit.
    ///
    /// Closes at most one connection for its charges. Closes the connection with the largest charge
    /// if a charge of an account within its fair share was refused since the last sweep. Also
    /// closes it if any charge was refused since the last sweep, another one between the last sweep
    /// and the one before it (`was_short`), and there was nothing to drop. Otherwise, if charges
    /// and events together exceed the limit, and events alone a quarter of it, closes the
    /// connection with the largest charge for watches.
    ///
    /// Finally closes the connections with the largest buffers until the other buffers fit into the
    /// room that charges and the other measured memory leave of three quarters of the limit. This
    /// room is at most half of the limit and at least a quarter.
    pub fn sweep(&self, now: Instant, was_short: &mut bool) -> Swept {
        let shared = &self.shared;
        let mut swept = Swept::default();
        shared.sample_events();
        let mut accounts = shared.accounts();
        let mut registered: Vec<Arc<Registered>> = Vec::new();
        for account in &accounts {
            let mut own = account.registered();
            if let Some(rate) = shared.limits.minimum_rate {
                swept.slow += drop_slow(account, &mut own, rate, now);
            }
            registered.append(&mut own);
        }
        swept.memory = self.drop_measured(&registered, now);
        // A connection that is being closed holds its memory for a moment longer.
        accounts.retain(|account| !account.is_closing());
        let is_short = shared.was_short.swap(false, Ordering::Relaxed);
        let is_unfair = shared.was_unfair.swap(false, Ordering::Relaxed);
        let stays_short = is_short && *was_short && swept.memory == 0;
        let events = shared.events.load(Ordering::Relaxed);
        let has_many_events = events > shared.limits.memory / RESERVED_SHARE;
        let to_close = if is_unfair || stays_short {
            largest(accounts.iter().map(|account| account.total()))
        } else if has_many_events && self.leased_and_events() > shared.limits.memory {
            // Delivering an event charges nothing, so perhaps no charge was refused.
            let of_watches = |account: &Arc<Account>| account.used(MemoryKind::Watch);
            largest(accounts.iter().map(of_watches))
        } else {
            None
        };
        if let Some(index) = to_close {
            accounts[index].close();
            swept.connections += 1;
        }
        swept.connections += self.close_largest_buffers(&accounts);
        *was_short = is_short;
        shared.count(swept);
        swept
    }

    /// Closes the connections with the largest buffers until the other buffers fit. Returns how
    /// many connections were closed.
    fn close_largest_buffers(&self, accounts: &[Arc<Account>]) -> u64 {
        let buffers = accounts.iter().map(|account| {
            if account.is_closing() {
                0
            } else {
                account.buffers().sample()
            }
        });
        let buffers: Vec<u64> = buffers.collect();
        let others = [&self.shared.snapshots, &self.shared.forwarded];
        let others = others.map(|bytes| bytes.load(Ordering::Relaxed));
        let others = others.iter().sum::<u64>() + self.leased_and_events();
        // Connections that are being closed will soon return what they have leased.
        let closing = self.shared.accounts().into_iter();
        let closing = closing.filter(|account| account.is_closing());
        let others = others.saturating_sub(closing.map(|account| account.total()).sum());
        let room = room_for_buffers(self.shared.limits.memory, others);
        let closed = to_close(&buffers, room);
        for index in &closed {
            accounts[*index].close();
        }
        closed.len() as u64
    }

    fn leased_and_events(&self) -> u64 {
        let events = self.shared.events.load(Ordering::Relaxed);
        self.leased().saturating_add(events)
    }

    /// Drops what costs most until the rest is within the limit. Returns how much was dropped.
    fn drop_measured(&self, registered: &[Arc<Registered>], now: Instant) -> u64 {
        let shared = &self.shared;
        let costs = registered.iter();
        let costs = costs.filter_map(|entry| Some((entry, entry.cost(now)?)));
        let (measured, costs): (Vec<_>, Vec<_>) = costs.unzip();
        let is_forwarded = |index: &usize| measured[*index].snapshot.is_none();
        let forwarded = (0..costs.len()).filter(is_forwarded);
        let mut forwarded: u64 = forwarded.map(|index| costs[index].1).sum();
        let memory = shared.limits.memory;
        let free = memory.saturating_sub(self.leased_and_events());
        let limit = free.min(memory / MEASURED_SHARE);
        let (dropped, cost) = to_drop(&costs, limit);
        for index in &dropped {
            measured[*index].revoke();
            if is_forwarded(index) {
                forwarded -= costs[*index].1;
            }
        }
        shared.forwarded.store(forwarded, Ordering::Relaxed);
        shared.snapshots.store(cost - forwarded, Ordering::Relaxed);
        dropped.len() as u64
    }
}

/// Returns how many bytes buffers may hold if everything else holds `others` bytes, by the
/// process's limit `memory`.
fn room_for_buffers(memory: u64, others: u64) -> u64 {
    let least = memory / RESERVED_SHARE;
    let unreserved = memory - least;
    let left = unreserved.saturating_sub(others);
    left.clamp(least, memory / MEASURED_SHARE)
}

// === impl Shared ===

impl Shared {
    fn accounts(&self) -> Vec<Arc<Account>> {
        let accounts = self.accounts.lock();
        accounts.values().filter_map(Weak::upgrade).collect()
    }

    /// Leases `bytes` if the process's limit permits it for an account that then uses `total`.
    fn lease(&self, bytes: u64, total: u64) -> Result<(), Short> {
        let limit = if total <= self.fair_share() {
            self.limits.memory
        } else {
            self.limits.memory - self.limits.memory / RESERVED_SHARE
        };
        let measured = [&self.snapshots, &self.forwarded, &self.events];
        let measured: u64 = measured
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .iter()
            .sum();
        let leased = |leased: u64| {
            let leased = leased.checked_add(bytes)?;
            let held = leased.checked_add(measured)?;
            (held <= limit).then_some(leased)
        };
        let updated = self
            .leased
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, leased);
        updated.map(drop).map_err(|_| Short::Process)
    }

    /// Adds `bytes` to the charges of lists if the limit of these charges permits it.
    fn add_to_lists(&self, bytes: u64) -> Result<(), Short> {
        let limit = self.limits.share(LISTS_BYTES) as u64;
        let added = |lists: u64| Some(lists.checked_add(bytes)?).filter(|lists| *lists <= limit);
        let updated = self
            .lists
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
        updated.map(drop).map_err(|_| Short::Process)
    }

    fn subtract_from_lists(&self, bytes: u64) {
        self.lists.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Measures the events that only readers hold.
    fn sample_events(&self) {
        let evicted = (self.evicted)();
        let before = self.last_evicted.swap(evicted, Ordering::Relaxed);
        self.events.store(evicted.min(before), Ordering::Relaxed);
    }

    /// Returns an account's part of the memory that is reserved for accounts that hold little.
    fn fair_share(&self) -> u64 {
        let reserved = self.limits.memory / RESERVED_SHARE;
        let open = self.open.load(Ordering::Relaxed).max(1);
        (reserved / open).max(MIN_FAIR_SHARE)
    }

    fn give_back(&self, bytes: u64) {
        self.leased.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that a charge was refused. With this charge, its account would use `total`.
    fn note_refusal(&self, short: Short, total: u64) {
        if short == Short::Process {
            self.was_short.store(true, Ordering::Relaxed);
            let is_fair = total <= self.fair_share();
            self.was_unfair.fetch_or(is_fair, Ordering::Relaxed);
        }
        self.refused.with_label_values(&[short.name()]).inc();
    }

    fn count(&self, swept: Swept) {
        let counts = [
            ("slow", swept.slow),
            ("memory", swept.memory),
            ("connection", swept.connections),
        ];
        for (why, count) in counts {
            self.dropped.with_label_values(&[why]).inc_by(count);
        }
    }
}

/// Drops those of `own`, which are registered with `account`, that have a reader that is too slow.
/// Returns how many were dropped. All bodies that are sent on one connection share the rate, because
/// a slow line may be fast enough for one body, but not for all of them.
fn drop_slow(
    account: &Account,
    own: &mut Vec<Arc<Registered>>,
    rate: MinimumRate,
    now: Instant,
) -> u64 {
    let paced = own.iter().filter(|entry| entry.held.is_paced());
    let share = account.peak_of_paced(paced.count(), rate.period, now);
    let rate = MinimumRate {
        bytes_per_second: rate.bytes_per_second.div_ceil(share.max(1) as u64),
        ..rate
    };
    let before = own.len();
    own.retain(|entry| {
        let is_too_slow = entry.held.is_too_slow(now, rate);
        if is_too_slow {
            entry.revoke_slow();
        }
        !is_too_slow
    });
    (before - own.len()) as u64
}

#[cfg(test)]
mod tests;
