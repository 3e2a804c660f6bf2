//! Measures the memory of a cached object in relation to its bytes on the wire: `cargo bench
//! --bench memory`.
//!
//! It counts the bytes that the allocator has handed out, including its rounding: the bytes that
//! the cache holds, and the peak above them while the objects are read.

use std::time::Duration;
use std::{slice, thread};

use bytes::Bytes;
use kubefan::api::{ResourceVersion, WatchEvent, WireFormat};
use kubefan::cache;
use kubefan::codec::{Decoder, FrameSplitter};
use serde_json::Value;
use tikv_jemalloc_ctl::{Access, AsName};

mod pods;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const COUNT: usize = 5_000;
const PAGE: usize = 500;
const CHUNK: usize = 16 << 10;
const METHODS: [IngestMethod; 3] = [
    IngestMethod::Pages,
    IngestMethod::WatchList,
    IngestMethod::Replaced,
];

/// How the objects reach the cache.
#[derive(Clone, Copy, Debug)]
enum IngestMethod {
    /// In a list, page by page.
    Pages,
    /// As the initial events of a watch.
    WatchList,
    /// As initial events. Then a change replaces each object, and the event log drops the
    /// states before the change.
    Replaced,
}

fn main() {
    println!("memory per object / bytes on the wire, {COUNT} pods");
    for format in [WireFormat::Json, WireFormat::Protobuf] {
        for (name, smallest, largest) in [
            ("2 KiB", 2 << 10, 2 << 10),
            ("1.5-3 KiB", 1_536, 3 << 10),
            ("10 KiB", 10 << 10, 10 << 10),
            ("8-16 KiB", 8 << 10, 16 << 10),
        ] {
            let size = |place| smallest + (largest - smallest) * (place * 7 % 100) / 100;
            let pods = pods_on_wire(format, size);
            print(&pods, format, name);
        }
        // In protobuf, the pods that have 2 KiB in JSON.
        if format == WireFormat::Protobuf {
            print(&pods::pods(COUNT, |_| 2 << 10), format, "2 KiB JSON");
        }
    }
}

/// Returns pods that have the given sizes as items of a list in `format`.
fn pods_on_wire(format: WireFormat, size: impl Fn(usize) -> usize) -> Vec<Value> {
    let mut pods = pods::pods(COUNT, &size);
    if format == WireFormat::Protobuf {
        let around = pods::list(&[], format).len();
        for (place, pod) in pods.iter_mut().enumerate() {
            let item = pods::list(slice::from_ref(pod), format).len() - around;
            let missing = size(place).saturating_sub(item);
            let padding = &mut pod["metadata"]["annotations"]["padding"];
            let length = padding.as_str().unwrap_or_default().len();
            *padding = "x".repeat(length + missing).into();
        }
    }
    pods
}

fn print(pods: &[Value], format: WireFormat, name: &str) {
    for method in METHODS {
        let wire = pods::list(pods, format).len();
        let (cache_bytes, extra) = measure_bytes(pods, format, method);
        println!(
            "{format:?} {name:>10} {method:<10?} {:>6} / {:>6} = {:.3}, peak {:>5} KiB more",
            cache_bytes / COUNT,
            wire / COUNT,
            cache_bytes as f64 / wire as f64,
            extra >> 10,
        );
    }
}

/// Returns the bytes that a cache of `pods` holds, and the peak above them while the pods are read.
fn measure_bytes(pods: &[Value], format: WireFormat, method: IngestMethod) -> (usize, usize) {
    let pages: Vec<_> = pods
        .chunks(PAGE)
        .map(|page| pods::list(page, format))
        .collect();
    let added = pods::frames(pods, format, "ADDED").concat();
    let newer: Vec<_> = pods.iter().map(newer).collect();
    let changed = pods::frames(&newer, format, "MODIFIED").concat();
    // A new thread, because jemalloc counts the allocations of each thread from its start.
    thread::scope(|scope| {
        let measure = scope.spawn(|| ingest(&pages, &added, &changed, format, method));
        measure.join().expect("a measurement")
    })
}

fn ingest(
    pages: &[Bytes],
    added: &[u8],
    changed: &[u8],
    format: WireFormat,
    method: IngestMethod,
) -> (usize, usize) {
    let fields = pods::fields();
    let decoder = Decoder::new(format, fields.clone());
    let before = allocated();
    let (mut writer, reader) = cache::cache(cache::Config {
        field_count: fields.fields.len(),
        retention_age: Duration::ZERO,
        retention_bytes: Some(0),
        retention_events: 0,
        ..cache::Config::default()
    });
    let mut relist = writer.relist();
    match method {
        IngestMethod::Pages => {
            for page in pages {
                let mut list = decoder.list_decoder();
                for chunk in page.chunks(CHUNK) {
                    let chunk = Bytes::copy_from_slice(chunk);
                    list.push(&chunk).expect("a piece of a page");
                }
                let page = list.finish().expect("a page");
                page.items.into_iter().for_each(|pod| relist.add(pod));
            }
        }
        IngestMethod::WatchList | IngestMethod::Replaced => {
            each_event(added, &decoder, format, |event| match event {
                WatchEvent::Change { object, frame, .. } => {
                    relist.add_from_frame(object, &frame);
                }
                other => unreachable!("all are changes: {other:?}"),
            });
        }
    }
    writer.replace(relist, ResourceVersion(10_000));
    if let IngestMethod::Replaced = method {
        each_event(changed, &decoder, format, |event| match event {
            WatchEvent::Change {
                event_type,
                object,
                frame,
            } => {
                let applied = writer.apply(event_type, object, Some(frame));
                applied.expect("versions only grow");
            }
            other => unreachable!("all are changes: {other:?}"),
        });
    }
    let cache_bytes = allocated() - before;
    drop((writer, reader));
    let most = counter(b"thread.peak.read\0") as usize;
    (cache_bytes, most - before - cache_bytes)
}

fn each_event(
    stream: &[u8],
    decoder: &Decoder,
    format: WireFormat,
    mut take: impl FnMut(WatchEvent),
) {
    let mut splitter = FrameSplitter::new(format, 64 << 20);
    for chunk in stream.chunks(CHUNK) {
        splitter.push(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next() {
            take(decoder.event(frame.expect("a frame")).expect("an event"));
        }
    }
}

/// Returns the pod with a later version, with an equal number of digits.
fn newer(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let version = &mut pod["metadata"]["resourceVersion"];
    let number: u64 = version
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a version");
    *version = (number + 20_000).to_string().into();
    pod
}

/// Returns the bytes that this thread has allocated minus the bytes that it has freed.
fn allocated() -> usize {
    (counter(b"thread.allocated\0") - counter(b"thread.deallocated\0")) as usize
}

fn counter(name: &[u8]) -> u64 {
    name.name().read().expect("jemalloc counts")
}
