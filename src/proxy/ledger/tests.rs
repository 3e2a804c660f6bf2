//! Tests of the ledger with all its parts.

use std::sync::atomic::AtomicUsize;
use std::task::{Context, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    memory: 20 * QUANTUM,
    connection_memory: 10 * QUANTUM,
    minimum_rate: None,
};

/// Counts how often it was revoked.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn revoked(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Revoke for Counted {
    fn revoke(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn used(ledger: &Ledger) -> u64 {
    ledger.usage().iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_charge_is_refused_over_the_limit_of_the_connection_and_of_the_process() {
    let ledger = Ledger::new(LIMITS);
    let (one, two, three) = (
        ledger.open_account(),
        ledger.open_account(),
        ledger.open_account(),
    );
    // A connection's first charge includes the connection itself: one quantum.
    let of_one = one.charge(MemoryKind::Body, 9 * QUANTUM).ok();
    assert!(of_one.is_some());
    assert_eq!(
        one.charge(MemoryKind::Body, 1).err(),
        Some(Short::Connection)
    );
    let mut of_two = two.charge(MemoryKind::Watch, 4 * QUANTUM).expect("it fits");
    assert_eq!(
        three.charge(MemoryKind::Body, 4 * QUANTUM).err(),
        Some(Short::Process)
    );
    assert_eq!(three.total(), 0);
    of_two.resize(QUANTUM).expect("less always fits");
    assert!(three.charge(MemoryKind::Body, QUANTUM).is_ok());
    assert_eq!(used(&ledger), (10 + 2 + 1) * QUANTUM);
    drop((of_one, of_two));
    drop((one, two, three));
    assert_eq!((used(&ledger), ledger.leased()), (0, 0));
    assert!(ledger.shared.accounts.lock().is_empty());
}

#[test]
fn snapshots_cost_what_their_cache_has_replaced_since() {
    let ledger = Ledger::new(LIMITS);
    let account = ledger.open_account();
    let replaced = Arc::new(AtomicU64::new(0));
    let hold = |before| {
        let held = Counted::default();
        let age = SnapshotAge::new(Arc::clone(&replaced), before);
        (account.register(held.clone(), Some(age)), held)
    };
    let sweep = || ledger.sweep(Instant::now(), &mut false).memory;
    let limit = LIMITS.memory / MEASURED_SHARE;
    let old: Vec<_> = (0..1000).map(|_| hold(0)).collect();
    replaced.store(limit, Ordering::Relaxed);
    let young = hold(limit);
    assert_eq!((sweep(), used(&ledger)), (0, limit));
    replaced.store(limit + 1, Ordering::Relaxed);
    assert_eq!((sweep(), used(&ledger)), (1000, 1));
    assert!(old.iter().all(|(_, held)| held.revoked() == 1));
    assert_eq!(young.1.revoked(), 0);
    // Charges reduce what snapshots may cost, and the other way round.
    drop(old);
    replaced.store(2 * limit, Ordering::Relaxed);
    assert_eq!((sweep(), used(&ledger)), (0, limit));
    let other = ledger.open_account();
    let held = other
        .charge(MemoryKind::Body, 4 * QUANTUM)
        .expect("it fits");
    let more = account.charge(MemoryKind::Body, 4 * QUANTUM);
    assert_eq!(more.err(), Some(Short::Process));
    drop(held);
    drop(young);
    assert_eq!((sweep(), used(&ledger)), (0, QUANTUM));
}

/// An answer of the API server with `unread` bytes that wait.
struct Unread(Counted, u64);

impl Revoke for Unread {
    fn revoke(&self) {
        self.0.revoke();
    }

    fn unread(&self, _now: Instant) -> u64 {
        self.1
    }
}

#[test]
fn forwarded_answers_that_wait_are_measured_and_dropped() {
    let ledger = Ledger::new(LIMITS);
    let account = ledger.open_account();
    let limit = LIMITS.memory / MEASURED_SHARE;
    let hold = |bytes| {
        let counted = Counted::default();
        (
            account.register(Unread(counted.clone(), bytes), None),
            counted,
        )
    };
    let held = [limit / 4, limit / 2, limit / 4, 0].map(hold);
    let sweep = || ledger.sweep(Instant::now(), &mut false).memory;
    assert_eq!((sweep(), used(&ledger)), (0, limit));
    let more = hold(limit / 4 - 1);
    assert_eq!((sweep(), used(&ledger)), (1, limit / 4 * 3 - 1));
    assert_eq!(
        [0, 1, 2, 3].map(|index| held[index].1.revoked()),
        [0, 1, 0, 0]
    );
    drop((held, more));
    assert_eq!((sweep(), used(&ledger)), (0, 0));
}

#[test]
fn a_dropped_entry_is_dropped_once() {
    let ledger = Ledger::new(LIMITS);
    let account = ledger.open_account();
    let (counted, others) = (Counted::default(), Counted::default());
    let _hold = account.register(Unread(counted.clone(), LIMITS.memory), None);
    let _other = account.register(Unread(others.clone(), 1), None);
    let sweep = || ledger.sweep(Instant::now(), &mut false).memory;
    assert_eq!([sweep(), sweep()], [1, 0]);
    assert_eq!((counted.revoked(), others.revoked()), (1, 0));
}

/// Creates a ledger in which everything is leased that accounts beyond their fair share may use.
/// Also returns the accounts and their charges, of 3, 10 and 2 quanta with those of the
/// connections.
fn full_for_greedy_accounts() -> (Ledger, Vec<Arc<Account>>, Vec<Charge>) {
    let ledger = Ledger::new(LIMITS);
    let accounts: Vec<_> = (0..3).map(|_| ledger.open_account()).collect();
    let charges = accounts.iter().zip([2, 9, 1]).map(|(account, quanta)| {
        let charge = account.charge(MemoryKind::Stream, quanta * QUANTUM);
        charge.expect("it fits")
    });
    let charges = charges.collect();
    (ledger, accounts, charges)
}

fn closed(accounts: &[Arc<Account>]) -> Vec<bool> {
    let cx = Context::from_waker(Waker::noop());
    let is_closed = |account: &Arc<Account>| account.poll_close(&cx, &mut false).is_ready();
    accounts.iter().map(is_closed).collect()
}

#[test]
fn the_largest_connection_is_closed_when_memory_stays_short() {
    let (ledger, accounts, charges) = full_for_greedy_accounts();
    let mut was_short = false;
    let mut sweep = || ledger.sweep(Instant::now(), &mut was_short).connections;
    let greedy = || accounts[0].charge(MemoryKind::Stream, 3 * QUANTUM);
    assert_eq!(sweep(), 0);
    assert!(greedy().is_err());
    assert_eq!(sweep(), 0, "short for the first time");
    assert_eq!(sweep(), 0, "no longer short");
    for expected in [0, 1] {
        assert!(greedy().is_err());
        assert_eq!(sweep(), expected);
    }
    assert_eq!(closed(&accounts), [false, true, false]);
    drop(charges);
}

#[test]
fn greedy_connections_leave_room_for_small_ones() {
    let (ledger, accounts, mut charges) = full_for_greedy_accounts();
    let sweep = || ledger.sweep(Instant::now(), &mut false).connections;
    // Each of these has its own quantum and one more, and their fair share is the minimum.
    let small: Vec<_> = (0..3).map(|_| ledger.open_account()).collect();
    for account in &small[..2] {
        charges.push(
            account
                .charge(MemoryKind::Stream, QUANTUM)
                .expect("within its share"),
        );
    }
    assert!(accounts[2].charge(MemoryKind::Stream, 3 * QUANTUM).is_err());
    assert_eq!(sweep(), 0, "a greedy one was refused, for the first time");
    assert!(small[2].charge(MemoryKind::Stream, QUANTUM).is_err());
    assert_eq!(sweep(), 1, "a small one was refused");
    assert_eq!(closed(&accounts), [false, true, false]);
    assert_eq!(closed(&small), [false, false, false]);
}

#[test]
fn events_that_only_readers_hold_leave_less_room_and_close_a_watching_connection() {
    let held = Arc::new(AtomicU64::new(0));
    let events = Arc::clone(&held);
    let evicted = move || events.load(Ordering::Relaxed);
    let ledger = Ledger::with_metrics(LIMITS, evicted, &Registry::new());
    let accounts = [(); 3].map(|()| ledger.open_account());
    let watching = [(0, QUANTUM), (1, 2 * QUANTUM)];
    let charges =
        watching.map(|(index, bytes)| accounts[index].charge(MemoryKind::Watch, bytes).ok());
    let busy = accounts[2].charge(MemoryKind::Body, 5 * QUANTUM).ok();
    assert!(charges.iter().all(Option::is_some) && busy.is_some());
    let sweep = || ledger.sweep(Instant::now(), &mut false).connections;

    let free = LIMITS.memory - ledger.leased();
    // What is gone at the next sweep was only about to be freed.
    held.store(10 * LIMITS.memory, Ordering::Relaxed);
    assert_eq!(sweep(), 0);
    held.store(0, Ordering::Relaxed);
    assert_eq!(sweep(), 0);
    held.store(free, Ordering::Relaxed);
    assert_eq!((sweep(), used(&ledger)), (0, ledger.leased()));
    assert_eq!((sweep(), used(&ledger)), (0, LIMITS.memory));
    assert!(
        accounts[2].charge(MemoryKind::Burst, QUANTUM).is_err(),
        "nothing is left"
    );
    held.store(free + 1, Ordering::Relaxed);
    assert_eq!(sweep(), 0);
    assert_eq!(sweep(), 1);
    assert_eq!(closed(&accounts), [false, true, false]);
    assert_eq!(sweep(), 1, "the memory of the first is still held");
    assert_eq!(closed(&accounts), [true, true, false]);
    held.store(0, Ordering::Relaxed);
    assert_eq!(sweep(), 0);
}

#[test]
fn connections_with_large_buffers_are_closed_until_the_rest_fits() {
    let ledger = Ledger::new(LIMITS);
    let accounts: Vec<_> = (0..4).map(|_| ledger.open_account()).collect();
    let buffer = |index: usize, buffer, quanta| {
        let account: &Arc<Account> = &accounts[index];
        account.buffers().set(buffer, quanta * QUANTUM);
    };
    let sweep = || ledger.sweep(Instant::now(), &mut false).connections;
    buffer(0, Buffer::Encrypted, 4);
    buffer(1, Buffer::Head, 2);
    buffer(1, Buffer::Gathered, 1);
    buffer(2, Buffer::Upload, 2);
    buffer(3, Buffer::Upload, 1);
    assert_eq!((sweep(), sweep()), (0, 0));
    assert_eq!(used(&ledger), 10 * QUANTUM);
    buffer(0, Buffer::Encrypted, 8);
    assert_eq!(sweep(), 0, "the output was less at the last sweep");
    assert_eq!(sweep(), 1);
    assert_eq!(closed(&accounts), [true, false, false, false]);
    assert_eq!(sweep(), 0, "it is being closed");
    buffer(3, Buffer::Upload, 8);
    assert_eq!(sweep(), 1);
    assert_eq!(closed(&accounts), [true, false, false, true]);
    let kinds = |kind| {
        let usage = ledger.usage();
        let of_kind = usage.iter().find(|(name, _)| *name == kind);
        of_kind.expect("a kind").1
    };
    let expected = [9, 2, 10].map(|quanta| quanta * QUANTUM);
    assert_eq!(Buffer::KINDS.map(kinds), expected);
}

#[test]
fn buffers_refuse_no_charge_and_shrink_for_it() {
    let ledger = Ledger::new(LIMITS);
    let busy = ledger.open_account();
    let silent: Vec<_> = (0..10).map(|_| ledger.open_account()).collect();
    for account in &silent {
        account.buffers().set(Buffer::Head, QUANTUM);
    }
    let mut was_short = false;
    let mut sweep = || ledger.sweep(Instant::now(), &mut was_short).connections;
    assert_eq!(sweep(), 0);
    let charge = busy.charge(MemoryKind::Watch, 9 * QUANTUM);
    assert!(charge.is_ok());
    assert_eq!(sweep(), 5);
    assert_eq!(sweep(), 0);
    assert!(!busy.is_closing());
}

#[test]
fn buffers_may_hold_what_is_left_between_a_quarter_and_a_half_of_the_limit() {
    for (others, room) in [
        (0, 50),
        (25, 50),
        (26, 49),
        (49, 26),
        (50, 25),
        (75, 25),
        (200, 25),
    ] {
        assert_eq!(room_for_buffers(100, others), room, "{others}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Close(usize),
    Charge(usize, u64),
    Resize(usize, u64),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = 0..6 * QUANTUM;
    prop_oneof![
        Just(Step::Open),
        (0..100_usize).prop_map(Step::Close),
        (0..100_usize, bytes.clone()).prop_map(|(account, bytes)| Step::Charge(account, bytes)),
        (0..100_usize, bytes).prop_map(|(charge, bytes)| Step::Resize(charge, bytes)),
        (0..100_usize).prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn accounts_never_exceed_what_was_granted_and_all_returns_to_zero(steps in vec(step(), 0..200)) {
        let ledger = Ledger::new(LIMITS);
        let mut accounts = vec![ledger.open_account()];
        let mut charges: Vec<Charge> = Vec::new();
        for step in steps {
            match step {
                Step::Open => accounts.push(ledger.open_account()),
                Step::Close(index) if accounts.len() > 1 => {
                    let index = index % accounts.len();
                    accounts.swap_remove(index);
                }
                Step::Charge(account, bytes) => {
                    let account = &accounts[account % accounts.len()];
                    let fits = account.total() + bytes + QUANTUM <= LIMITS.connection_memory;
                    match account.charge(MemoryKind::Body, bytes) {
                        Ok(charge) => charges.push(charge),
                        Err(Short::Process) => {
                            // The limit of greedy accounts is reached, apart from what accounts
                            // retain in their leases.
                            let leased = 3 * QUANTUM * (accounts.len() + charges.len()) as u64;
                            let limit = LIMITS.memory - LIMITS.memory / RESERVED_SHARE;
                            prop_assert!(used(&ledger) + bytes + leased > limit);
                        }
                        Err(Short::Connection) => prop_assert!(!fits),
                    }
                }
                Step::Resize(index, bytes) if !charges.is_empty() => {
                    let index = index % charges.len();
                    let before = charges[index].bytes();
                    let expected = charges[index].resize(bytes).map_or(before, |()| bytes);
                    prop_assert_eq!(charges[index].bytes(), expected);
                }
                Step::Release(index) if !charges.is_empty() => {
                    let index = index % charges.len();
                    charges.swap_remove(index);
                }
                Step::Close(_) | Step::Resize(..) | Step::Release(_) => {}
            }
            let charged: u64 = charges.iter().map(Charge::bytes).sum();
            prop_assert!(charged <= used(&ledger));
            prop_assert!(used(&ledger) <= ledger.leased());
            prop_assert!(ledger.leased() <= LIMITS.memory);
        }
        drop((accounts, charges));
        prop_assert_eq!((used(&ledger), ledger.leased()), (0, 0));
    }
}
