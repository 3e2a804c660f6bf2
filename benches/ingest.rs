//! Measures decoding of what an API server sends: lists and watch frames of pods, in both formats:
//! `cargo bench --bench ingest`.

use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use kubefan::api::{ResourceVersion, WatchEvent, WireFormat};
use kubefan::cache;
use kubefan::codec::{Decoder, FrameSplitter};

mod pods;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    divan::main();
}

const FORMATS: [WireFormat; 2] = [WireFormat::Json, WireFormat::Protobuf];
/// The number of bytes that one read from a connection returns.
const CHUNK: usize = 64 << 10;

/// Decodes a list of 5,000 pods of 10 KiB to objects.
#[divan::bench(args = FORMATS, sample_count = 10, sample_size = 1)]
fn list_of_5000_pods(bencher: Bencher<'_, '_>, format: WireFormat) {
    let body = pods::list(&pods::pods(5_000, |_| 10 << 10), format);
    let decoder = Decoder::new(format, pods::fields());
    bencher
        .counter(BytesCount::new(body.len()))
        .bench_local(|| decoder.list(&body).expect("a list").items.len());
}

/// Decodes a list of 5,000 pods of 10 KiB, and puts the objects into a cache.
#[divan::bench(args = FORMATS, sample_count = 10, sample_size = 1)]
fn list_of_5000_pods_into_a_cache(bencher: Bencher<'_, '_>, format: WireFormat) {
    let fields = pods::fields();
    let body = pods::list(&pods::pods(5_000, |_| 10 << 10), format);
    let decoder = Decoder::new(format, Arc::clone(&fields));
    bencher
        .counter(BytesCount::new(body.len()))
        .bench_local(|| {
            let (mut writer, reader) = cache::cache(config(fields.fields.len()));
            let mut relist = writer.relist();
            let page = decoder.list(&body).expect("a list");
            page.items.into_iter().for_each(|pod| relist.add(pod));
            writer.replace(relist, page.resource_version);
            (writer, reader)
        });
}

/// Decodes a list in pages of 500 pods, from chunks of bytes as they arrive from a connection.
#[divan::bench(args = [16 << 10, 64 << 10], consts = [0, 1], sample_count = 10, sample_size = 1)]
fn list_from_chunks<const FORMAT: usize>(bencher: Bencher<'_, '_>, chunk: usize) {
    let format = FORMATS[FORMAT];
    let pods = pods::pods(5_000, |_| 10 << 10);
    let pages: Vec<_> = pods
        .chunks(500)
        .map(|page| pods::list(page, format))
        .collect();
    let decoder = Decoder::new(format, pods::fields());
    let bytes: usize = pages.iter().map(Bytes::len).sum();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        let mut items = Vec::new();
        for page in &pages {
            let mut list = decoder.list_decoder();
            for chunk in page.chunks(chunk) {
                list.push(chunk).expect("a piece of a list");
            }
            items.extend(list.finish().expect("a list").items);
        }
        items
    });
}

/// Splits and decodes the frames of a watch from chunks of bytes.
#[divan::bench(args = [2 << 10, 10 << 10], consts = [0, 1], sample_count = 20, sample_size = 4)]
fn watch<const FORMAT: usize>(bencher: Bencher<'_, '_>, size: usize) {
    let format = FORMATS[FORMAT];
    let stream = pods::frames(&pods::pods(500, |_| size), format, "MODIFIED").concat();
    let stream = Bytes::from(stream);
    let decoder = Decoder::new(format, pods::fields());
    bencher
        .counter(BytesCount::new(stream.len()))
        .bench_local(|| {
            let mut splitter = FrameSplitter::new(format, 64 << 20);
            let mut version = ResourceVersion(0);
            for at in (0..stream.len()).step_by(CHUNK) {
                splitter.push(stream.slice(at..stream.len().min(at + CHUNK)));
                while let Some(frame) = splitter.next() {
                    let event = decoder.event(frame.expect("a frame"));
                    let WatchEvent::Change { object, .. } = event.expect("an event") else {
                        unreachable!("all are changes");
                    };
                    version = version.max(object.resource_version);
                }
            }
            version
        });
}

fn config(field_count: usize) -> cache::Config {
    cache::Config {
        field_count,
        ..cache::Config::default()
    }
}
