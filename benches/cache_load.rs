//! Measures how long one client, or many clients at once, can make the others wait:
//! `cargo bench --bench cache_load`.
//!
//! CPU times are those of the thread that does the work. Pauses are measured on the clock, so other
//! programs on the machine can only make them longer; the shortest of several rounds is printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use cpu_time::ThreadTime;
use kubefan::api::{
    EventType, Field, FieldSelector, FieldTerm, LabelSelector, Object, ObjectKey, ObjectValues,
    ResourceVersion, Selection,
};
use kubefan::cache;
use kubefan::cache::{Reader, WatchFrom, WatchItem, WatchStream, Writer};
use tokio::time::Instant;

const NODES: usize = 5_000;
const PODS: usize = 100_000;
const ROUNDS: usize = 5;

fn main() {
    resume_after_a_cut();
    search_for_rare_objects();
    relist_beside_readers();
    selectors_without_an_index();
}

/// Resumes five thousand node agents after 7,500 events.
fn resume_after_a_cut() {
    let (mut writer, reader) = filled(NODES);
    let agents: Vec<_> = (0..NODES).map(|node| Arc::new(on_node(node))).collect();
    let watch = |from| {
        let open = |agent: &Arc<Selection>| reader.watch(from, Arc::clone(agent)).ok();
        let streams: Vec<_> = agents.iter().filter_map(open).collect();
        assert_eq!(streams.len(), NODES);
        streams
    };
    drop(watch(WatchFrom::Tip));
    for change in 0..7_500 {
        apply(&mut writer, change % NODES, 2 + change as u64);
    }
    let began = ThreadTime::now();
    let mut streams = watch(WatchFrom::After(ResourceVersion(1)));
    let received: usize = streams.iter_mut().map(drain).sum();
    assert_eq!(received, 7_500);
    println!(
        "resume of {NODES} watches over 7,500 events: {:.0} ms of CPU",
        began.elapsed().as_secs_f64() * 1e3
    );
}

/// Measures a watch-list with a selector that no index answers and that selects one of 100,000
/// objects.
fn search_for_rare_objects() {
    let (_writer, reader) = filled(PODS);
    let selector = Arc::new(labelled("shard in (shard-77777,none)"));
    let longest = (0..ROUNDS).map(|_| {
        let stream = reader.watch(WatchFrom::Snapshot, Arc::clone(&selector));
        let mut stream = stream.expect("the cache is ready");
        let mut longest = Duration::ZERO;
        loop {
            let began = ThreadTime::now();
            let polled = poll(&mut stream);
            longest = longest.max(began.elapsed());
            if let Poll::Ready(Some(WatchItem::InitialEnd(_))) = polled {
                return longest;
            }
        }
    });
    let longest = longest.min().unwrap_or_default();
    println!(
        "longest poll of a watch-list that selects one of {PODS} objects: {:.2} ms of CPU",
        longest.as_secs_f64() * 1e3
    );
}

/// Measures a relist that changes every object, beside 200 groups that are tested for each change.
fn relist_beside_readers() {
    let longest = (0..ROUNDS).map(|_| {
        let (mut writer, reader) = filled(PODS);
        let unindexed = (0..200).map(|number| labelled(&format!("app!=app-{number}")));
        let streams: Vec<_> = unindexed
            .map(|selection| reader.watch(WatchFrom::Tip, Arc::new(selection)))
            .collect();
        let mut relist = writer.relist();
        for index in 0..PODS {
            relist.add(pod(index, 2 + index as u64));
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let readers = {
            let (reader, is_over) = (reader.clone(), Arc::clone(&is_over));
            thread::spawn(move || longest_read(&reader, &is_over))
        };
        thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        writer.replace(relist, ResourceVersion(1_000_000));
        let taken = began.elapsed();
        is_over.store(true, Ordering::SeqCst);
        drop(streams);
        let (longest, reads) = readers.join().expect("the reader's thread");
        (longest, taken, reads)
    });
    let (longest, taken, reads) = longest.min().unwrap_or_default();
    println!(
        "relist of {PODS} changed objects, {:.0} ms: longest pause of {reads} reads {:.2} ms",
        taken.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3
    );
}

/// Takes snapshots and opens watches until `is_over`. Returns the longest time and their number.
fn longest_read(reader: &Reader, is_over: &AtomicBool) -> (Duration, usize) {
    let selection = Arc::new(on_node(1));
    let (mut longest, mut reads) = (Duration::ZERO, 0);
    while !is_over.load(Ordering::SeqCst) {
        let began = Instant::now();
        let snapshot = reader.snapshot();
        let stream = reader.watch(WatchFrom::Tip, Arc::clone(&selection));
        let bookmark = stream.as_ref().map(WatchStream::bookmark);
        assert!(snapshot.is_some() && bookmark.is_ok());
        drop(stream);
        longest = longest.max(began.elapsed());
        reads += 1;
    }
    (longest, reads)
}

/// Measures clients that try to watch with 5,000 different selectors that no index answers.
fn selectors_without_an_index() {
    let (mut writer, reader) = filled(NODES);
    let selectors = (0..5_000).map(|number| labelled(&format!("app!=app-{number}")));
    let watches: Vec<_> = selectors
        .filter_map(|selection| reader.watch(WatchFrom::Tip, Arc::new(selection)).ok())
        .collect();
    let began = ThreadTime::now();
    for change in 0..1_000 {
        apply(&mut writer, change % NODES, 2 + change as u64);
    }
    let each = began.elapsed() / 1_000;
    println!(
        "a change, {} of 5,000 watches without an index accepted: {} us of CPU, {} events in the log",
        watches.len(),
        each.as_micros(),
        reader.stats().log_events,
    );
}

fn filled(count: usize) -> (Writer, Reader) {
    let (mut writer, reader) = cache::cache(cache::Config {
        indexed_labels: vec!["shard".to_owned()],
        field_count: 1,
        ..cache::Config::default()
    });
    let mut relist = writer.relist();
    (0..count).for_each(|index| relist.add(pod(index, 1)));
    writer.replace(relist, ResourceVersion(1));
    (writer, reader)
}

fn pod(index: usize, version: u64) -> Object {
    let values = ObjectValues {
        uid: format!("uid-{index}").into(),
        labels: vec![
            ("app".into(), "web".into()),
            ("shard".into(), format!("shard-{index}").into()),
        ],
        fields: vec![format!("node-{}", index % NODES).into()],
    };
    let key = ObjectKey::new(Some("shop"), &format!("pod-{index:06}"));
    let body = Bytes::from(vec![b'x'; 500]);
    Object::new(key, ResourceVersion(version), &values, body)
}

fn apply(writer: &mut Writer, index: usize, version: u64) {
    let applied = writer.apply(EventType::Modified, pod(index, version), None);
    applied.expect("versions only grow");
}

fn on_node(node: usize) -> Selection {
    let term = FieldTerm {
        field: Field::Value(0),
        equal: true,
        value: format!("node-{node}"),
    };
    Selection {
        fields: FieldSelector { terms: vec![term] },
        ..Selection::default()
    }
}

fn labelled(selector: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(selector).expect("a selector"),
        ..Selection::default()
    }
}

fn poll(stream: &mut WatchStream) -> Poll<Option<WatchItem>> {
    stream.poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Takes all changes until the stream waits, and returns their number.
fn drain(stream: &mut WatchStream) -> usize {
    let mut changes = 0;
    // A stream that searches the log sometimes yields, so one pending poll is not the end.
    while stream.bookmark().is_none() {
        changes += usize::from(poll(stream).is_ready());
    }
    changes
}
