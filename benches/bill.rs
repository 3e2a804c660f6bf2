//! Measures what the bill costs for each request: `cargo bench --bench bill`. Times are for one
//! thousand requests.

use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use kubefan_proxy::bill::estimate::{self, Answered, BodyFormat, ListParameters, ListVersion};
use kubefan_proxy::bill::{
    Bill, Context, CpuAccount, Entry, Identity, Operation, Outcome, SelectorClass, SnapshotOptions,
};
use kubefan_proxy::ledger::Limits;
use tokio::time::Instant;

const REQUESTS: usize = 1_000;

fn main() {
    divan::main();
}

fn bill() -> Bill {
    Bill::new(&Limits::new(Some(1 << 32), None, 0), Instant::now())
}

/// Returns the names of `count` users.
fn users(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("system:serviceaccount:namespace-{number}:default"))
        .collect()
}

fn entry(user: &str) -> Entry<'_> {
    let parameters = ListParameters {
        stored: 5_000,
        average_bytes: 4_700,
        names_one_object: false,
        limit: 500,
        has_continue: false,
        has_selector: false,
        is_indexed: false,
        version: ListVersion::Unset,
    };
    let answered = Answered {
        objects: 500,
        bytes: 3_400_000,
        format: BodyFormat::Json,
        is_most_recent: true,
    };
    Entry {
        identity: Identity::User(user),
        user_agent: "controller/v1.2.3 (linux/amd64) kubernetes/1a2b3c4",
        operation: Operation {
            verb: "list",
            group: "",
            resource: "pods",
            selector: SelectorClass::None,
        },
        outcome: Outcome::Hit,
        status: 200,
        is_unversioned: true,
        starts_list: true,
        objects: 500,
        bytes: 3_400_000,
        waited: Duration::ZERO,
        was_stalled: false,
        cpu: Duration::ZERO,
        saved: estimate::list(37, &parameters, &answered),
    }
}

/// Counts requests of so few users that all have rows, and of many more.
#[divan::bench(args = [1, 100, 10_000])]
fn record(bencher: Bencher<'_, '_>, count: usize) {
    let (bill, users) = (bill(), users(count));
    let now = Instant::now();
    let mut next = users.iter().cycle();
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| {
        for user in next.by_ref().take(REQUESTS) {
            bill.record(&entry(user), now);
        }
    });
}

/// Counts requests of one client on two threads.
#[divan::bench(threads = [2])]
fn record_concurrently(bencher: Bencher<'_, '_>) {
    let bill = bill();
    let now = Instant::now();
    bencher.counter(ItemsCount::new(REQUESTS)).bench(|| {
        for _ in 0..REQUESTS {
            bill.record(&entry("user"), now);
        }
    });
}

/// Runs polls that do nothing, and measures one of 64.
#[divan::bench]
fn measure(bencher: Bencher<'_, '_>) {
    let account = Arc::new(CpuAccount::default());
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| {
        for poll in 0..REQUESTS {
            account.measure(|| divan::black_box(poll));
        }
    });
}

/// Makes a snapshot when all rows are used.
#[divan::bench]
fn snapshot(bencher: Bencher<'_, '_>) {
    let bill = bill();
    let now = Instant::now();
    for user in users(10_000) {
        bill.record(&entry(&user), now);
    }
    let options = SnapshotOptions {
        top: 50,
        top_of_column: 3,
        context: Context::default(),
        process_cpu: Duration::ZERO,
        serving_cpu: Duration::ZERO,
        number_of: &|_| 0,
    };
    bencher.bench_local(|| bill.snapshot(&options, now));
}
