//! Measures how long a relist of 100,000 changed objects delays the other tasks of its thread:
//! `cargo bench --bench relist_pause`.
//!
//! CPU times are those of the thread that polls the relist, so other programs on the machine do not
//! count. Memory that is freed on another thread does not count either. The longest poll is taken
//! from the best of several rounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cpu_time::ThreadTime;
use kubefan::api::{LabelSelector, Object, ObjectKey, ObjectValues, ResourceVersion, Selection};
use kubefan::cache;
use kubefan::cache::{Reader, Relist, ReplaceOutcome, WatchFrom, Writer};
use tokio::runtime::Builder;

/// The allocator of kubefan's binary.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
const ROUNDS: usize = 3;
const LIST: ResourceVersion = ResourceVersion(1_000_000);

/// How the list differs from the store.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Every object has another version.
    Changed,
    /// Every object has another version, and another value of an indexed field with two values.
    Moved,
    /// The list is empty.
    Deleted,
    /// The resource version went back, so a new epoch begins.
    NewEpoch,
    /// The cache was empty.
    First,
}

fn main() {
    println!("a relist of {PODS} objects, in milliseconds of CPU");
    for (change, groups) in [
        (Change::Changed, 0),
        (Change::Changed, 200),
        (Change::Changed, 1_000),
        (Change::Moved, 0),
        (Change::Deleted, 0),
        (Change::Deleted, 200),
        (Change::NewEpoch, 200),
        (Change::First, 0),
    ] {
        let rounds = || (0..ROUNDS).map(|_| prepare(change, groups));
        let at_once = rounds().map(|mut relist| {
            let list = relist.list.take().expect("a list");
            let began = ThreadTime::now();
            relist.writer.replace(list, relist.version);
            began.elapsed()
        });
        let at_once = at_once.min().unwrap_or_default();
        let polled = rounds().map(poll_cooperative).min().unwrap_or_default();
        let [at_once, longest, total] =
            [at_once, polled.longest, polled.total].map(|time| time.as_secs_f64() * 1e3);
        println!(
            "{change:?}, {groups} groups: in one poll {at_once:.1}; cooperative: {total:.1} in {} \
             polls, the longest {longest:.2}",
            polled.polls
        );
    }
    drop_an_old_snapshot();
}

/// Measures how long the last reader of the objects before the relist needs to drop its snapshot.
fn drop_an_old_snapshot() {
    let took = (0..ROUNDS).map(|_| {
        let mut relist = prepare(Change::Changed, 0);
        let snapshot = relist.reader.snapshot();
        let list = relist.list.take().expect("a list");
        relist.writer.replace(list, relist.version);
        let began = ThreadTime::now();
        drop(snapshot);
        began.elapsed()
    });
    let took = took.min().unwrap_or_default();
    let took = took.as_secs_f64() * 1e3;
    println!("drop of the last snapshot before the relist: {took:.2}");
}

struct Prepared {
    writer: Writer,
    reader: Reader,
    _streams: Vec<cache::WatchStream>,
    list: Option<Relist>,
    version: ResourceVersion,
}

fn prepare(change: Change, groups: usize) -> Prepared {
    let (mut writer, reader) = cache::cache(cache::Config {
        indexed_labels: vec!["shard".to_owned()],
        field_count: 2,
        ..cache::Config::default()
    });
    let mut list = writer.relist();
    if !matches!(change, Change::First) {
        (0..PODS).for_each(|index| list.add(pod(index, 1 + index as u64, "Running")));
        writer.replace(list, ResourceVersion(PODS as u64));
        list = writer.relist();
    }
    let unindexed = (0..groups).map(|number| labelled(&format!("app!=app-{number}")));
    let watch = |selection| reader.watch(WatchFrom::Tip, Arc::new(selection)).ok();
    let streams = unindexed.filter_map(watch).collect();
    let version = match change {
        Change::NewEpoch => ResourceVersion(1),
        _ => LIST,
    };
    if !matches!(change, Change::Deleted) {
        let later = PODS as u64 + 1;
        let phase = match change {
            Change::Moved => "Failed",
            _ => "Running",
        };
        (0..PODS).for_each(|index| list.add(pod(index, later + scattered(index), phase)));
    }
    Prepared {
        writer,
        reader,
        _streams: streams,
        list: Some(list),
        version,
    }
}

/// Returns a different number for each index, in another order.
fn scattered(index: usize) -> u64 {
    (index * 7_919 % PODS) as u64
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Polled {
    longest: Duration,
    total: Duration,
    polls: usize,
}

fn poll_cooperative(mut prepared: Prepared) -> Polled {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let list = prepared.list.take().expect("a list");
    let mut polled = Polled::default();
    let outcome = runtime.block_on(async {
        let replaced = prepared
            .writer
            .replace_cooperatively(list, prepared.version);
        let mut replaced = pin!(replaced);
        std::future::poll_fn(|cx| {
            let began = ThreadTime::now();
            let outcome = replaced.as_mut().poll(cx);
            let took = began.elapsed();
            polled.longest = polled.longest.max(took);
            polled.total += took;
            polled.polls += 1;
            outcome
        })
        .await
    });
    let is_first = matches!(outcome, ReplaceOutcome::First);
    assert!(is_first || prepared.reader.stats().relists == 2);
    polled
}

fn pod(index: usize, version: u64, phase: &str) -> Object {
    let values = ObjectValues {
        uid: format!("uid-{index}").into(),
        labels: vec![
            ("app".into(), "web".into()),
            ("shard".into(), format!("shard-{index}").into()),
        ],
        fields: vec![
            format!("node-{}", index % 5_000).into(),
            phase.to_owned().into(),
        ],
    };
    let key = ObjectKey::new(Some("shop"), &format!("pod-{index:06}"));
    let body = Bytes::from(vec![b'x'; 500]);
    Object::new(key, ResourceVersion(version), &values, body)
}

fn labelled(selector: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(selector).expect("a selector"),
        ..Selection::default()
    }
}
