//! Tests of the table: no count is lost, heavy clients have rows, and memory is bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn entry<'a>(user: &'a str, verb: &'static str, resource: &'a str) -> Entry<'a> {
    Entry {
        identity: Identity::User(user),
        ..Entry::for_tests(verb, resource)
    }
}

/// An answer that has delivered this many events, of ten bytes each.
#[derive(Default)]
struct Delivered(AtomicU64);

impl OpenAnswer for Delivered {
    fn progress(&self) -> Progress {
        let events = self.0.load(Ordering::Relaxed);
        Progress {
            events,
            bytes: events * 10,
            ..Progress::default()
        }
    }

    fn behind(&self, _now: Instant) -> Option<Behind> {
        None
    }
}

/// Returns the counts of all clients.
fn sum(table: &Table, now: Instant) -> Counts {
    let (usages, mut sum) = table.read(now);
    for usage in usages {
        sum += &usage.total;
    }
    sum
}

/// Returns the user, the program and the requests of each client, sorted.
fn requests_of(usages: &[ClientUsage]) -> Vec<(&str, &str, u64)> {
    let clients = usages.iter().map(|usage| {
        let client = &usage.client;
        let requests = usage.total.get(Count::Requests);
        (client.user.as_str(), client.user_agent.as_str(), requests)
    });
    let mut clients: Vec<_> = clients.collect();
    clients.sort_unstable();
    clients
}

proptest! {
    #[test]
    fn no_count_is_lost_and_heavy_clients_have_rows(
        requests in vec((0..400_usize, 0..20_usize, 0..5_000_u64), 0..600),
        heavy in 0..400_usize,
    ) {
        let start = Instant::now();
        let table = Table::new(0, start);
        let users: Vec<String> = (0..400).map(|user| format!("user-{user}")).collect();
        let resources: Vec<String> = (0..20).map(|number| format!("resource-{number}")).collect();
        let mut exact: HashMap<usize, (u64, u64)> = HashMap::new();
        let each_heavy = |request: (usize, usize, u64)| [request, (heavy, 0, 100)];
        for (user, resource, bytes) in requests.into_iter().flat_map(each_heavy) {
            let entry = Entry { bytes, ..entry(&users[user], "get", &resources[resource]) };
            table.record(&entry, start);
            let (requests, sum) = exact.entry(user).or_default();
            *requests += 1;
            *sum += bytes;
        }
        let (usages, other) = table.read(start);
        let mut total = other;
        for usage in &usages {
            total += &usage.total;
            let user = users.iter().position(|user| *user == usage.client.user);
            let (requests, bytes) = exact[&user.expect("a user of the test")];
            // A row may be younger than its client.
            prop_assert!(usage.total.get(Count::Requests) <= requests);
            prop_assert!(usage.total.get(Count::Bytes) <= bytes);
            prop_assert!(usage.operations.len() <= 12);
        }
        let requests: u64 = exact.values().map(|(requests, _)| requests).sum();
        let bytes: u64 = exact.values().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(total.get(Count::Requests), requests);
        prop_assert_eq!(total.get(Count::Bytes), bytes);
        // It has half of the requests, so more than one of the four rows of its shard.
        let has_row = usages.iter().any(|usage| usage.client.user == users[heavy]);
        prop_assert!(has_row || requests == 0);
    }
}

#[test]
fn a_client_is_a_user_with_a_program() {
    let start = Instant::now();
    let table = Table::new(1 << 24, start);
    let address = Identity::Address([192, 0, 2, 1].into());
    for (identity, user_agent) in [
        (Identity::User("a"), "kubectl/v1.37.1 (linux/amd64)"),
        (Identity::User("a"), "kubectl/v1.37.2 (linux/arm64)"),
        (Identity::User("a"), "curl/8.5.0"),
        (Identity::User("b"), "curl/8.5.0"),
        (address, "curl/8.5.0"),
    ] {
        let entry = Entry {
            identity,
            user_agent,
            ..entry("", "get", "pods")
        };
        table.record(&entry, start);
    }
    let (usages, _) = table.read(start);
    assert_eq!(
        requests_of(&usages),
        [
            ("", "", 1),
            ("a", "curl/8.5", 1),
            ("a", "kubectl/v1.37", 2),
            ("b", "curl/8.5", 1),
        ]
    );
    let of_address = usages.iter().find(|usage| usage.client.user.is_empty());
    let of_address = of_address.expect("the row of the address");
    assert_eq!(of_address.client.address, Some([192, 0, 2, 1].into()));
}

#[test]
fn names_of_programs_do_not_take_the_rows_of_other_users() {
    let start = Instant::now();
    let table = Table::new(1 << 24, start);
    let (known, unknown) = (
        Identity::User("many"),
        Identity::Address([192, 0, 2, 1].into()),
    );
    for number in 0..3 {
        table.record(&entry(&format!("user-{number}"), "get", "pods"), start);
    }
    for number in 0..1_000 {
        let user_agent = format!("program-{number}/1.0");
        for identity in [known, unknown] {
            let entry = Entry {
                identity,
                user_agent: &user_agent,
                ..entry("", "get", "pods")
            };
            table.record(&entry, start);
        }
    }
    let (usages, other) = table.read(start);
    assert!(other.is_zero());
    let own: Vec<_> = (0..8)
        .map(|number| format!("program-{number}/1.0"))
        .collect();
    let mut expected = vec![("", "", 1_000), ("many", "(other programs)", 992)];
    expected.extend(own.iter().map(|program| ("many", program.as_str(), 1)));
    expected.extend(["user-0", "user-1", "user-2"].map(|user| (user, "program/v1.2", 1)));
    assert_eq!(requests_of(&usages), expected);
}

#[test]
fn an_open_watch_is_counted_while_it_is_open_and_once() {
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let delivered = Arc::new(Delivered::default());
    let handle = table.open(
        &entry("a", "watch", "pods"),
        Arc::clone(&delivered) as Arc<dyn OpenAnswer>,
        None,
        start,
    );
    for (second, events, of_minute) in [(1, 5, 5), (1, 5, 5), (2, 7, 7), (119, 7, 0), (120, 9, 2)] {
        delivered.0.store(events, Ordering::Relaxed);
        let now = start + Duration::from_secs(second);
        table.settle(now);
        let (usages, _) = table.read(now);
        let [usage] = &usages[..] else {
            panic!("{} rows", usages.len());
        };
        assert_eq!(usage.total.get(Count::Events), events, "{second}");
        assert_eq!(usage.total.get(Count::Bytes), events * 10, "{second}");
        assert_eq!(usage.total.get(Count::SavedEvents), events, "{second}");
        assert_eq!(usage.open_watches, 1);
        let minute = usage.minute.get(Count::Events);
        assert!(minute.abs_diff(of_minute) <= 1, "{second}: {minute}");
    }
    delivered.0.store(12, Ordering::Relaxed);
    drop(handle);
    let (usages, _) = table.read(start + Duration::from_secs(121));
    let total = usages[0].total;
    assert_eq!(total.get(Count::Events), 12);
    assert_eq!(total.get(Count::Requests), 1);
    assert_eq!(total.get(Count::WatchesEnded), 1);
    assert_eq!(usages[0].open_watches, 0);
}

#[test]
fn a_client_with_more_operations_than_rows_has_all_counts() {
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let resources: Vec<String> = (0..30).map(|number| format!("resource-{number}")).collect();
    let handles: Vec<_> = resources
        .iter()
        .map(|resource| {
            table.record(&entry("a", "list", resource), start);
            let delivered = Arc::new(Delivered::default());
            table.open(&entry("a", "watch", resource), delivered, None, start)
        })
        .collect();
    let (usages, _) = table.read(start);
    let [usage] = &usages[..] else {
        panic!("{} rows", usages.len());
    };
    assert!(usage.has_other_operations);
    assert_eq!(usage.operations.len(), 12);
    assert_eq!(usage.open_watches, 30);
    for counts in [usage.total, usage.minute, usage.ten_minutes] {
        assert_eq!(counts.get(Count::Requests), 60);
        assert_eq!(counts.get(Count::WatchesOpened), 30);
    }
    drop(handles);
}

#[test]
fn ten_thousand_users_with_a_hundred_thousand_watches_have_bounded_memory() {
    let start = Instant::now();
    let budget = 16 << 20;
    let table = Arc::new(Table::new(budget, start));
    let answer: Arc<dyn OpenAnswer> = Arc::new(Delivered::default());
    let mut handles = Vec::new();
    for user in 0..10_000 {
        let name = format!(
            "system:node:ip-10-0-{}-{}.example.internal",
            user / 256,
            user % 256
        );
        for resource in [
            "pods",
            "nodes",
            "secrets",
            "services",
            "leases",
            "events",
            "jobs",
            "roles",
            "configmaps",
            "endpoints",
        ] {
            let entry = entry(&name, "watch", resource);
            handles.push(table.open(&entry, Arc::clone(&answer), None, start));
        }
    }
    table.settle(start);
    let bytes = table.bytes();
    // An open answer takes 64 bytes, and the capacity may be twice as large as the number.
    assert!(bytes <= budget + 2 * 64 * 100_000, "{bytes}");
    let (usages, _) = table.read(start);
    assert_eq!(usages.len(), SHARDS * MAX_ROWS);
    let open: u64 = usages.iter().map(|usage| usage.open_watches).sum();
    assert_eq!(open, usages.len() as u64 * 10);
    assert_eq!(sum(&table, start).get(Count::Requests), 100_000);
    drop(handles);
    assert_eq!(sum(&table, start).get(Count::WatchesEnded), 100_000);
}

#[test]
fn the_memory_of_many_open_answers_is_given_back() {
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let answer: Arc<dyn OpenAnswer> = Arc::new(Delivered::default());
    let watch = entry("a", "watch", "pods");
    let open = || table.open(&watch, Arc::clone(&answer), None, start);
    let first = open();
    table.settle(start);
    let before = table.bytes();
    let others: Vec<_> = (0..10_000).map(|_| open()).collect();
    assert!(table.bytes() >= before + 10_000 * 64);
    drop(others);
    table.settle(start);
    let after = table.bytes();
    assert!(after <= before, "{after} > {before}");
    drop(first);
}

#[test]
fn rows_fit_into_the_memory_that_they_are_given() {
    let start = Instant::now();
    for budget in [2 << 20, 4 << 20, 16 << 20] {
        let table = Table::new(budget, start);
        for user in 0..5_000 {
            let name = format!("system:serviceaccount:namespace-{user}:default");
            for number in 0..20 {
                let resource = format!("resource-{number}");
                table.record(&entry(&name, "list", &resource), start);
            }
        }
        let bytes = table.bytes();
        assert!(bytes <= budget, "{bytes} > {budget}");
        // The estimate of a row's size is not far too large, or fewer clients have rows.
        let is_full = table.read(start).0.len() == SHARDS * MAX_ROWS;
        assert!(is_full || bytes >= budget / 2, "{bytes} of {budget}");
    }
}

#[test]
fn open_answers_are_counted_once_while_another_thread_counts_them() {
    const WATCHES: u64 = 2_000;
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let answer: Arc<dyn OpenAnswer> = Arc::new(Delivered::default());
    let watch = entry("a", "watch", "pods");
    let open = |_| table.open(&watch, Arc::clone(&answer), None, start);
    let handles: Vec<_> = (0..WATCHES).map(open).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                table.settle(start);
            }
        });
        for _ in 0..50 {
            let (usages, _) = table.read(start);
            assert_eq!(usages[0].open_watches, WATCHES);
        }
    });
    drop(handles);
}

#[test]
fn threads_lose_no_count() {
    const THREADS: u64 = 4;
    const REQUESTS: u64 = 2_000;
    let start = Instant::now();
    let table = Arc::new(Table::new(0, start));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let user = format!("user-{}", (request + number) % 100);
                    table.record(&entry(&user, "get", "pods"), start);
                    let delivered = Arc::new(Delivered(AtomicU64::new(3)));
                    let watch = entry(&user, "watch", "pods");
                    drop(table.open(&watch, delivered, None, start));
                }
            });
        }
        for _ in 0..100 {
            table.settle(start);
            table.read(start);
        }
    });
    let sum = sum(&table, start);
    let expected = THREADS * REQUESTS;
    assert_eq!(sum.get(Count::Requests), 2 * expected);
    assert_eq!(sum.get(Count::WatchesEnded), expected);
    assert_eq!(sum.get(Count::Events), 3 * expected);
    assert_eq!(sum.get(Count::Bytes), 30 * expected);
}
