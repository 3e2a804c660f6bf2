//! Tests of the advice: what bad clients get, and that usual ones get none.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::GroupVersionResource;
use tokio::time::Instant;

use super::{Advice, AdviceKind, Context, advise};
use crate::bill::table::{
    Behind, ClientUsage, Count, Entry, Identity, OpenAnswer, Operation, Outcome, Progress,
    SelectorClass, Table,
};

/// What one client does in a test, each second.
#[derive(Clone, Copy)]
struct Habit {
    verb: &'static str,
    selector: SelectorClass,
    /// Requests per second; below 1, one request in several seconds.
    per_second: f64,
    change: fn(&mut Entry<'_>),
}

fn habit(verb: &'static str, per_second: f64, change: fn(&mut Entry<'_>)) -> Habit {
    Habit {
        verb,
        selector: SelectorClass::None,
        per_second,
        change,
    }
}

fn entry(verb: &'static str, selector: SelectorClass) -> Entry<'static> {
    let entry = Entry::for_tests(verb, "pods");
    Entry {
        operation: Operation {
            selector,
            ..entry.operation
        },
        starts_list: verb == "list",
        objects: if verb == "list" { 5_000 } else { 0 },
        bytes: 10_000,
        ..entry
    }
}

fn unversioned(entry: &mut Entry<'_>) {
    entry.is_unversioned = true;
}

fn unauthorized(entry: &mut Entry<'_>) {
    unversioned(entry);
    entry.identity = Identity::Address([192, 0, 2, 1].into());
    entry.outcome = Outcome::Refused;
    entry.status = 401;
}

fn forbidden(entry: &mut Entry<'_>) {
    unversioned(entry);
    entry.outcome = Outcome::Refused;
    entry.status = 403;
}

fn unchanged(_entry: &mut Entry<'_>) {}

/// An answer that is behind, or up to date.
struct Reader(Option<Behind>);

impl OpenAnswer for Reader {
    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn behind(&self, _now: Instant) -> Option<Behind> {
        self.0
    }
}

/// Returns what the bill has after `seconds` seconds of `habits`, beside `open` open watches. The
/// watches of habits end at once.
fn usage(habits: &[Habit], seconds: u64, open: usize) -> ClientUsage {
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let handles: Vec<_> = (0..open)
        .map(|_| {
            let entry = entry("watch", SelectorClass::None);
            table.open(&entry, Arc::new(Reader(None)), None, start)
        })
        .collect();
    for second in 0..seconds {
        let now = start + Duration::from_secs(second);
        for habit in habits {
            let before = (second as f64 * habit.per_second) as u64;
            let after = ((second + 1) as f64 * habit.per_second) as u64;
            for _ in before..after {
                let mut entry = entry(habit.verb, habit.selector);
                (habit.change)(&mut entry);
                if habit.verb == "watch" && entry.status == 200 {
                    table.open(&entry, Arc::new(Reader(None)), None, now);
                } else {
                    table.record(&entry, now);
                }
            }
        }
    }
    let now = start + Duration::from_secs(seconds);
    let usage = table.read(now).0.pop().expect("a client");
    drop(handles);
    usage
}

fn kinds(usage: &ClientUsage) -> Vec<AdviceKind> {
    let advice = advise(usage, Context::default());
    advice.iter().map(|advice| advice.kind).collect()
}

#[test]
fn each_bad_client_gets_its_advice_within_ten_seconds() {
    let unindexed = Habit {
        selector: SelectorClass::Unindexed,
        ..habit("list", 5.0, unchanged)
    };
    let get = Habit {
        selector: SelectorClass::Name,
        ..habit("get", 50.0, unversioned)
    };
    for (habits, expected) in [
        (&[habit("list", 5.0, unversioned)][..], AdviceKind::ListLoop),
        (&[get], AdviceKind::GetLoop),
        (
            &[
                habit("list", 3.0, unchanged),
                habit("watch", 3.0, unchanged),
            ],
            AdviceKind::RelistLoop,
        ),
        (
            &[habit("watch", 3.0, |entry| entry.starts_list = true)],
            AdviceKind::RelistLoop,
        ),
        (&[habit("watch", 1.0, unchanged)], AdviceKind::WatchReopened),
        (&[unindexed], AdviceKind::UnindexedSelector),
        (
            &[habit("list", 2.0, |entry| {
                entry.outcome = Outcome::Forwarded {
                    reason: "media_type",
                    is_for_format: true,
                };
            })],
            AdviceKind::OtherFormat,
        ),
        (&[habit("get", 2.0, forbidden)], AdviceKind::DeniedReads),
        (
            &[habit("get", 2.0, unauthorized)],
            AdviceKind::WrongCredentials,
        ),
        (
            &[habit("list", 1.0, |entry| entry.bytes = 30 << 20)],
            AdviceKind::HugeLists,
        ),
        (
            &[habit("list", 0.5, |entry| entry.was_stalled = true)],
            AdviceKind::StalledBodies,
        ),
    ] {
        let found = kinds(&usage(habits, 10, 0));
        assert!(found.contains(&expected), "{expected:?}: {found:?}");
        // A relist loop also reopens watches; all others have one fault.
        let others = found.iter().filter(|kind| **kind != expected);
        let others: Vec<_> = others
            .filter(|kind| **kind != AdviceKind::WatchReopened)
            .collect();
        assert!(others.is_empty(), "{expected:?}: {found:?}");
    }
}

#[test]
fn refused_reads_are_no_loop() {
    let refusals = [
        (
            unauthorized as fn(&mut Entry<'_>),
            AdviceKind::WrongCredentials,
        ),
        (forbidden, AdviceKind::DeniedReads),
    ];
    for (refused, expected) in refusals {
        let get = Habit {
            selector: SelectorClass::Name,
            ..habit("get", 100.0, refused)
        };
        for habits in [
            &[habit("list", 5.0, refused)][..],
            &[get],
            &[habit("list", 3.0, refused), habit("watch", 3.0, refused)],
        ] {
            assert_eq!(kinds(&usage(habits, 10, 0)), [expected]);
        }
    }
    let may_only_list = [
        habit("list", 3.0, unchanged),
        habit("watch", 3.0, forbidden),
    ];
    let found = kinds(&usage(&may_only_list, 10, 0));
    assert_eq!(found, [AdviceKind::DeniedReads]);
}

#[test]
fn a_slow_reader_gets_advice_and_a_busy_one_none() {
    for (waited, expected) in [(6, &[AdviceKind::SlowReader][..]), (4, &[])] {
        let start = Instant::now();
        let table = Arc::new(Table::new(1 << 24, start));
        let behind = Behind {
            events: 1_200,
            waited: Duration::from_secs(waited),
            remaining: Some(Duration::from_secs(240)),
        };
        let entry = entry("watch", SelectorClass::Namespace);
        let handle = table.open(&entry, Arc::new(Reader(Some(behind))), None, start);
        let usage = table.read(start).0.pop().expect("a client");
        assert_eq!(kinds(&usage), expected, "{waited}");
        if let [Advice { evidence, .. }] = &advise(&usage, Context::default())[..] {
            assert_eq!(
                evidence,
                "watch of all pods of a namespace: the reader has been behind for 6 s, by 1,200 \
                 events; what it needs is retained for 4 min more; slow answers of this client: 1"
            );
        }
        drop(handle);
    }
}

#[test]
fn usual_clients_get_no_advice() {
    let get = |per_second| Habit {
        selector: SelectorClass::Name,
        ..habit("get", per_second, unversioned)
    };
    let minutes_of_watch = habit("watch", 1.0 / 400.0, unchanged);
    for (what, habits, seconds, open) in [
        ("an idle informer", &[][..], 3_600, 1),
        (
            "an informer that starts",
            &[habit("list", 0.1, unchanged)],
            10,
            1,
        ),
        ("an informer that resumes", &[minutes_of_watch], 3_600, 1),
        (
            "a person with kubectl",
            &[habit("list", 0.2, unversioned), get(0.3)],
            600,
            0,
        ),
        (
            "watch kubectl get pods",
            &[habit("list", 0.5, unversioned)],
            600,
            0,
        ),
        (
            "a controller",
            &[get(1.5), habit("update", 1.0, unchanged), minutes_of_watch],
            600,
            20,
        ),
        (
            "the rollout of a program with 2,000 pods",
            &[habit("list", 200.0, unversioned)],
            10,
            2_000,
        ),
        (
            "kubectl wait -l",
            &[
                habit("list", 0.1, unchanged),
                Habit {
                    selector: SelectorClass::Name,
                    ..habit("watch", 0.1, unchanged)
                },
            ],
            600,
            0,
        ),
        ("300 agents with a GET a minute", &[get(5.0)], 600, 0),
        ("300 agents that start together", &[get(100.0)], 3, 0),
        (
            "leader election of many candidates",
            &[Habit {
                change: |entry| {
                    unversioned(entry);
                    entry.operation.group = "coordination.k8s.io";
                    entry.operation.resource = "leases";
                },
                ..get(50.0)
            }],
            600,
            0,
        ),
        (
            "a user that may not read a few things",
            &[habit("list", 0.2, forbidden)],
            600,
            0,
        ),
    ] {
        let usage = usage(habits, seconds, open);
        let advice = advise(&usage, Context::default());
        assert!(advice.is_empty(), "{what}: {advice:?}");
    }
}

#[test]
fn many_watches_with_one_selection_without_an_index_are_no_fault() {
    let start = Instant::now();
    let table = Arc::new(Table::new(1 << 24, start));
    let watch = entry("watch", SelectorClass::Unindexed);
    let handles: Vec<_> = (0..500)
        .map(|_| table.open(&watch, Arc::new(Reader(None)), None, start))
        .collect();
    let usage = table.read(start + Duration::from_secs(60)).0.pop();
    let advice = advise(&usage.expect("a client"), Context::default());
    assert!(advice.is_empty(), "{advice:?}");
    drop(handles);
}

#[test]
fn a_list_is_no_loop_if_the_row_of_its_watch_may_be_gone() {
    for (others, expected) in [(0, &[AdviceKind::ListLoop][..]), (20, &[])] {
        let start = Instant::now();
        let table = Arc::new(Table::new(1 << 24, start));
        let names: Vec<String> = (0..others)
            .map(|number| format!("other-{number}"))
            .collect();
        for resource in &names {
            let mut get = entry("get", SelectorClass::Name);
            get.operation.resource = resource;
            table.record(&get, start);
        }
        for _ in 0..100 {
            let mut list = entry("list", SelectorClass::None);
            unversioned(&mut list);
            table.record(&list, start);
        }
        let usage = table.read(start).0.pop().expect("a client");
        assert_eq!(kinds(&usage), expected, "{others}");
    }
}

#[test]
fn evidence_has_the_numbers_and_the_fix_names_what_helps() {
    let list = habit("list", 5.0, unversioned);
    for (resource, fix) in [
        ("nodes", "use a watch, or --freshness session"),
        ("pods", "use a watch, or read with resourceVersion=0"),
    ] {
        let usage = usage(&[list], 59, 0);
        let session_resources = &[GroupVersionResource::new("", "v1", resource)];
        let advice = advise(&usage, Context { session_resources });
        let expected = Advice {
            kind: AdviceKind::ListLoop,
            evidence: "lists all pods 300 times a minute without a version: 1,500,000 objects a \
                       minute"
                .to_owned(),
            fix: fix.to_owned(),
        };
        assert_eq!(advice, [expected]);
    }
    let get = Habit {
        selector: SelectorClass::Name,
        ..habit("get", 20.0, unversioned)
    };
    let advice = advise(&usage(&[get], 59, 0), Context::default());
    let fix = "use a watch, or --freshness session and --resource pods";
    assert_eq!(advice[0].fix, fix);
}

#[test]
fn a_client_without_a_row_is_named_if_it_is_slow() {
    let start = Instant::now();
    let table = Arc::new(Table::new(1, start));
    let behind = Behind {
        events: 1,
        waited: Duration::from_secs(60),
        remaining: None,
    };
    let mut watch = entry("watch", SelectorClass::None);
    watch.identity = Identity::User("stalled");
    watch.bytes = 0;
    let handle = table.open(&watch, Arc::new(Reader(Some(behind))), None, start);
    let names: Vec<String> = (0..10_000).map(|number| format!("user-{number}")).collect();
    for name in &names {
        let mut busy = entry("list", SelectorClass::None);
        busy.identity = Identity::User(name);
        table.record(&busy, start);
    }
    let (usages, mut sum) = table.read(start);
    let is_stalled = |usage: &&ClientUsage| usage.client.user == "stalled";
    let stalled: Vec<_> = usages.iter().filter(is_stalled).collect();
    let [stalled] = stalled[..] else {
        panic!("{} rows", stalled.len());
    };
    assert!(stalled.operations.is_empty());
    assert_eq!(stalled.slow.as_ref().map(|slow| slow.answers), Some(1));
    assert_eq!(kinds(stalled), [AdviceKind::SlowReader]);
    // Bytes that are not known are not mentioned.
    let evidence = &advise(stalled, Context::default())[0].evidence;
    assert!(
        evidence.ends_with("by 1 events; slow answers of this client: 1"),
        "{evidence}"
    );
    usages.iter().for_each(|usage| sum += &usage.total);
    assert_eq!(sum.get(Count::Requests), 10_001);
    drop(handle);
}
