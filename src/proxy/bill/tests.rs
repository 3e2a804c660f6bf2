//! Tests of the bill as the admin API shows it.

use std::time::Duration;

use kubefan_core::telemetry::Registry;
use serde_json::json;

use super::estimate::Cost;
use super::*;

fn limits() -> Limits {
    Limits::new(Some(1 << 30), None, 0)
}

/// Returns a number that is different for the users of these tests.
fn number_of(user: &str) -> u64 {
    let add = |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte));
    user.bytes().fold(0, add)
}

fn options() -> SnapshotOptions<'static> {
    SnapshotOptions {
        top: 10,
        top_of_column: 1,
        context: Context::default(),
        process_cpu: Duration::from_secs(100),
        serving_cpu: Duration::from_secs(70),
        number_of: &number_of,
    }
}

fn entry<'a>(user: &'a str, verb: &'static str) -> Entry<'a> {
    let entry = Entry::for_tests(verb, "deployments");
    Entry {
        identity: Identity::User(user),
        operation: Operation {
            group: "apps",
            selector: SelectorClass::Namespace,
            ..entry.operation
        },
        bytes: 100,
        ..entry
    }
}

/// A watch that is behind by this time.
struct Stalled(Duration);

impl OpenAnswer for Stalled {
    fn progress(&self) -> Progress {
        Progress {
            events: 1_000,
            ..Progress::default()
        }
    }

    fn behind(&self, _now: Instant) -> Option<Behind> {
        Some(Behind {
            events: 7,
            waited: self.0,
            remaining: None,
        })
    }
}

#[test]
fn each_column_has_its_client_first() {
    let start = Instant::now();
    let bill = Bill::new(&limits(), start);
    for number in 0..50 {
        let user = format!("usual-{number}");
        for _ in 0..20 {
            bill.record(&entry(&user, "get"), start);
        }
    }
    let forwarded = Outcome::Forwarded {
        reason: "consistent",
        is_for_format: false,
    };
    let refused = |user, status| Entry {
        outcome: Outcome::Refused,
        status,
        ..entry(user, "get")
    };
    let unusual = [
        (Column::Requests, entry("requests", "get"), 500),
        (
            Column::Forwards,
            Entry {
                outcome: forwarded,
                ..entry("forwards", "get")
            },
            1,
        ),
        (
            Column::Objects,
            Entry {
                objects: 5_000,
                ..entry("objects", "list")
            },
            1,
        ),
        (
            Column::Bytes,
            Entry {
                bytes: 1 << 30,
                ..entry("bytes", "get")
            },
            1,
        ),
        (
            Column::Waited,
            Entry {
                waited: Duration::from_secs(1),
                ..entry("waited", "get")
            },
            1,
        ),
        (Column::Unauthorized, refused("unauthorized", 401), 1),
        (Column::Forbidden, refused("forbidden", 403), 1),
        (Column::Gone, refused("gone", 410), 1),
        (Column::TooMany, refused("tooMany", 429), 1),
        (
            Column::Stalls,
            Entry {
                was_stalled: true,
                ..entry("stalls", "get")
            },
            1,
        ),
        (
            Column::Cpu,
            Entry {
                cpu: Duration::from_secs(3),
                ..entry("cpu", "get")
            },
            1,
        ),
        (
            Column::Saved,
            Entry {
                saved: Cost {
                    cpu: Duration::from_secs(9),
                    ..Cost::default()
                },
                ..entry("saved", "get")
            },
            1,
        ),
    ];
    for (_, entry, times) in &unusual {
        for _ in 0..*times {
            bill.record(entry, start);
        }
    }
    let open = |user, waited| {
        let answer = Arc::new(Stalled(Duration::from_secs(waited)));
        bill.open(&entry(user, "watch"), answer, None, start)
    };
    let handles = [open("open", 0), open("open", 0), open("slow", 60)];
    let watches = [
        (Column::Open, "open"),
        (Column::Opened, "open"),
        (Column::Events, "open"),
        (Column::Slow, "slow"),
    ];
    let columns = unusual
        .iter()
        .map(|(column, entry, _)| match entry.identity {
            Identity::User(user) => (*column, user),
            Identity::Address(_) => unreachable!("all have users"),
        });
    let snapshot = bill.snapshot(&options(), start);
    assert_eq!(snapshot.clients_with_rows, 50 + 12 + 2);
    assert_eq!(snapshot.largest.len(), Column::all().count());
    for (column, user) in columns.chain(watches) {
        let (_, name) = Column::all()
            .find(|(own, _)| *own == column)
            .expect("a name");
        let mut largest = snapshot.largest.iter();
        let largest = largest.find(|row| row.column == name).expect("a row");
        let first = &snapshot.clients[largest.clients[0]].client;
        assert_eq!(first.user_number, Some(number_of(user)), "{column:?}");
    }
    // The first ten by requests, and those that are first in another column.
    let first = &snapshot.clients[0].client;
    assert_eq!(first.user_number, Some(number_of("requests")));
    assert_eq!(snapshot.clients.len(), 10 + 11 + 2);
    drop(handles);
}

#[test]
fn a_snapshot_has_the_documented_fields() {
    let start = Instant::now();
    let bill = Bill::new(&limits(), start);
    let forwarded = Entry {
        outcome: Outcome::Forwarded {
            reason: "consistent",
            is_for_format: false,
        },
        cpu: Duration::from_secs(20),
        ..entry("a", "get")
    };
    bill.record(&forwarded, start);
    let answer = Arc::new(Stalled(Duration::from_secs(60)));
    let handle = bill.open(&entry("a", "watch"), answer, None, start);
    let snapshot = bill.snapshot(&options(), start);
    let snapshot = serde_json::to_value(&snapshot).expect("numbers and texts");
    assert_eq!(
        snapshot["cpu"],
        json!({
            "processSeconds": 100.0,
            "clientsSeconds": 20.0,
            "ingestSeconds": 30.0,
            "sharedSeconds": 50.0,
        })
    );
    let row = &snapshot["clients"][0];
    let client = json!({"userNumber": number_of("a"), "userAgent": "program/v1.2"});
    assert_eq!(row["client"], client);
    assert_eq!(row["openWatches"], 1);
    assert_eq!(
        row["forwarded"],
        json!([{"reason": "consistent", "requests": 1}])
    );
    assert_eq!(
        row["slow"],
        json!({
            "answers": 1, "verb": "watch", "resource": "deployments.apps",
            "events": 7, "waitedSeconds": 60.0,
        })
    );
    assert_eq!(row["advice"][0]["kind"], "slowReader");
    assert_eq!(row["operations"][0]["selector"], "namespace");
    assert_eq!(row["operations"][0]["group"], "apps");
    assert_eq!(snapshot["total"]["requests"], 2);
    assert_eq!(snapshot["total"]["cpuSeconds"], 20.0);
    assert_eq!(snapshot["total"]["saved"]["events"], 1_000);
    assert_eq!(snapshot["other"]["requests"], 0);
    let advice = bill.advice(Context::default(), &number_of, start);
    let advice = serde_json::to_value(&advice).expect("numbers and texts");
    assert_eq!(advice[0]["client"], client);
    assert_eq!(advice[0]["kind"], "slowReader");
    assert!(advice[0]["evidence"].is_string() && advice[0]["fix"].is_string());
    assert!(bill.users().iter().eq(["a"]));
    drop(handle);
}

#[test]
fn the_memory_of_the_bill_and_what_is_saved_are_metrics() {
    let registry = Registry::new();
    let start = Instant::now();
    let bill = Arc::new(Bill::new(&limits(), start));
    let sampled = Arc::clone(&bill);
    registry.on_scrape(move |samples| sampled.sample(start, samples));
    let saved = Cost {
        requests: 1,
        objects: 40,
        events: 3,
        cpu: Duration::from_millis(1_500),
        ..Cost::default()
    };
    // More clients than have rows.
    for number in 0..2_000 {
        let user = number.to_string();
        let entry = Entry {
            saved,
            ..entry(&user, "list")
        };
        bill.record(&entry, start);
    }
    let (_, metrics) = registry.render();
    let value = |name: &str| {
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.expect("the metric").parse::<f64>().expect("a number")
    };
    assert!(value("kubefan_kept_memory_bytes{kind=\"bill\"}") > 1_000.0);
    assert_eq!(value("kubefan_saved_requests_total"), 2_000.0);
    assert_eq!(value("kubefan_saved_list_objects_total"), 80_000.0);
    assert_eq!(value("kubefan_saved_watch_events_total"), 6_000.0);
    assert_eq!(value("kubefan_saved_cpu_seconds_total"), 3_000.0);
}

#[test]
fn samples_that_have_counted_too_much_are_reduced_in_proportion() {
    let start = Instant::now();
    let bill = Bill::new(&limits(), start);
    for (user, seconds) in [("one", 60), ("other", 80)] {
        let entry = Entry {
            cpu: Duration::from_secs(seconds),
            ..entry(user, "list")
        };
        bill.record(&entry, start);
    }
    // The threads have used 70 s.
    let snapshot = serde_json::to_value(bill.snapshot(&options(), start)).expect("JSON");
    let mut seconds = Vec::new();
    for client in snapshot["clients"].as_array().expect("clients") {
        for counts in [
            &client["total"],
            &client["minute"],
            &client["operations"][0]["total"],
        ] {
            seconds.push(counts["cpuSeconds"].as_f64().expect("a number"));
        }
    }
    seconds.sort_by(f64::total_cmp);
    assert_eq!(seconds, [30.0, 30.0, 30.0, 40.0, 40.0, 40.0]);
    assert_eq!(snapshot["total"]["cpuSeconds"], 70.0);
    let cpu = &snapshot["cpu"];
    let shares = ["clientsSeconds", "ingestSeconds", "sharedSeconds"].map(|share| &cpu[share]);
    assert_eq!(shares, [&json!(70.0), &json!(30.0), &json!(0.0)]);
}
