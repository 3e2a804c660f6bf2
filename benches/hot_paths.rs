//! Measures the work per event and per list: `cargo bench --bench hot_paths`. Times depend on the
//! machine; ratios depend on it less.

use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use futures::FutureExt;
use kubefan::api::{
    EventType, LabelSelector, Object, ResourceVersion, SelectableFields, Selection, WatchEvent,
    WireFormat,
};
use kubefan::cache::{Reader, WatchFrom, WatchItem, WatchStream, Writer};
use kubefan::codec::{Decoder, Encoder, FrameSplitter, MetaVersion};
use kubefan::{cache, codec};

fn main() {
    divan::main();
}

/// Returns the JSON frame of a watch event for a pod of about 2 KiB at `version`.
fn frame(event_type: &str, name: usize, version: u64) -> Bytes {
    let padding = "x".repeat(1_600);
    format!(
        "{{\"type\":\"{event_type}\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
         \"metadata\":{{\"name\":\"pod-{name:05}\",\"namespace\":\"shop\",\"uid\":\"uid-{name}\",\
         \"resourceVersion\":\"{version}\",\"labels\":{{\"app\":\"web\",\"shard\":\"{}\"}},\
         \"annotations\":{{\"padding\":\"{padding}\"}}}},\
         \"spec\":{{\"nodeName\":\"node-{:03}\"}},\"status\":{{\"phase\":\"Running\"}}}}}}\n",
        name % 100,
        name % 500,
    )
    .into()
}

fn decoder() -> Decoder {
    Decoder::new(WireFormat::Json, Arc::new(SelectableFields::default()))
}

/// Returns a cache of `count` pods at version 1.
fn filled(count: usize) -> (Writer, Reader) {
    let (mut writer, reader) = cache::cache(cache::Config {
        indexed_labels: vec!["shard".into()],
        ..cache::Config::default()
    });
    let mut relist = writer.relist();
    let decoder = decoder();
    for name in 0..count {
        let WatchEvent::Change { object, .. } = event(&decoder, "ADDED", name, 1) else {
            unreachable!("the frame is a change");
        };
        relist.add(object);
    }
    writer.replace(relist, ResourceVersion(1));
    (writer, reader)
}

fn event(decoder: &Decoder, event_type: &str, name: usize, version: u64) -> WatchEvent {
    let frame = frame(event_type, name, version);
    decoder.event(frame).expect("a well-formed frame")
}

fn apply(writer: &mut Writer, event: WatchEvent) {
    let WatchEvent::Change {
        event_type,
        object,
        frame,
    } = event
    else {
        unreachable!("the frame is a change");
    };
    let applied = writer.apply(event_type, object, Some(frame));
    applied.expect("versions only grow");
}

/// Splits and decodes one watch frame.
#[divan::bench]
fn decode_event(bencher: Bencher<'_, '_>) {
    let decoder = decoder();
    let chunk = frame("MODIFIED", 1, 2);
    bencher
        .counter(BytesCount::new(chunk.len()))
        .bench_local(|| {
            let mut splitter = FrameSplitter::new(WireFormat::Json, 1 << 20);
            splitter.push(chunk.clone());
            let frame = splitter.next().expect("a whole frame").expect("no fault");
            decoder.event(frame).expect("well-formed")
        });
}

/// Decodes one page of a LIST.
#[divan::bench(args = [500, 5_000])]
fn decode_list(bencher: Bencher<'_, '_>, count: usize) {
    let (_writer, reader) = filled(count);
    let body: Vec<u8> = list_parts(&reader, &Selection::default()).concat();
    let body = Bytes::from(body);
    let decoder = decoder();
    bencher
        .counter(BytesCount::new(body.len()))
        .bench_local(|| decoder.list(&body).expect("well-formed").items.len());
}

/// Applies one change to a cache of `count` objects: to the store and to the event log.
#[divan::bench(args = [1_000, 50_000], sample_count = 20, sample_size = 200)]
fn apply_event(bencher: Bencher<'_, '_>, count: usize) {
    let (mut writer, _reader) = filled(count);
    let decoder = decoder();
    let mut version = 1;
    bencher
        .with_inputs(|| {
            version += 1;
            event(&decoder, "MODIFIED", version as usize % count, version)
        })
        .bench_local_values(|event| apply(&mut writer, event));
}

/// Applies one change that `watchers` watches receive and encode.
#[divan::bench(args = [1_000, 5_000], sample_count = 20, sample_size = 20)]
fn watch_fanout(bencher: Bencher<'_, '_>, watchers: usize) {
    let (mut writer, reader) = filled(100);
    let decoder = decoder();
    let encoder = Encoder::new(WireFormat::Json, "Pod", "v1");
    let everything = Arc::new(Selection::default());
    let mut streams: Vec<WatchStream> = (0..watchers)
        .map(|_| {
            let stream = reader.watch(WatchFrom::Tip, Arc::clone(&everything));
            stream.expect("the cache is ready")
        })
        .collect();
    let mut version = 1;
    bencher.counter(ItemsCount::new(watchers)).bench_local(|| {
        version += 1;
        apply(&mut writer, event(&decoder, "MODIFIED", 1, version));
        streams
            .iter_mut()
            .map(|stream| next_frame_length(stream, &encoder))
            .sum::<usize>()
    });
}

fn next_frame_length(stream: &mut WatchStream, encoder: &Encoder) -> usize {
    match stream.next().now_or_never() {
        Some(Some(WatchItem::Change { event, verdict })) => event
            .frame(verdict, || {
                encoder.event(EventType::Modified, &event.object)
            })
            .len(),
        other => unreachable!("the change is ready: {other:?}"),
    }
}

fn list_parts(reader: &Reader, selection: &Selection) -> Vec<Bytes> {
    let snapshot = reader.snapshot().expect("the cache is ready");
    let items: Vec<_> = snapshot.list(selection, None).collect();
    Encoder::new(WireFormat::Json, "Pod", "v1")
        .list_parts(snapshot.resource_version().into(), items)
        .collect()
}

/// Makes the body of a LIST of all objects, as slices of the stored bytes.
#[divan::bench(args = [1_000, 50_000])]
fn list_everything(bencher: Bencher<'_, '_>, count: usize) {
    let (_writer, reader) = filled(count);
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| list_parts(&reader, &Selection::default()).len());
}

/// Makes the body of a LIST with a label selector that matches one object in a hundred. The index
/// answers the first selector, but not the second.
#[divan::bench(args = ["shard=7", "shard in (7,1000)"])]
fn list_selective(bencher: Bencher<'_, '_>, selector: &str) {
    let (_writer, reader) = filled(50_000);
    let selection = Selection {
        labels: LabelSelector::parse(selector).expect("a selector"),
        ..Selection::default()
    };
    bencher.bench_local(|| list_parts(&reader, &selection).len());
}

/// Returns a pod of about 10 KiB, half of it metadata. The keys are in the order of a built-in
/// kind, or sorted as in a custom resource.
fn large_pod(is_custom: bool) -> Object {
    let fields: Vec<_> = (0..150)
        .map(|field| format!("\"f:field-{field:04}\":{{\".\":{{}}}}"))
        .collect();
    let (fields, padding) = (fields.join(","), "x".repeat(5_000));
    let spec = format!("\"spec\":{{\"image\":\"{padding}\"}}");
    let text = match is_custom {
        false => format!(
            "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"a\",\"namespace\":\"b\",\
             \"uid\":\"u\",\"resourceVersion\":\"1\",\"labels\":{{\"app\":\"web\"}},\"managedFields\":[\
             {{\"manager\":\"m\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{{fields}}}}}]}},{spec}}}"
        ),
        true => format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"labels\":{{\"app\":\"web\"}},\
             \"managedFields\":[{{\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{{fields}}},\"manager\":\"m\"}}],\
             \"name\":\"a\",\"namespace\":\"b\",\"resourceVersion\":\"1\",\"uid\":\"u\"}},{spec}}}"
        ),
    };
    decoder().object(text.as_bytes()).expect("a pod")
}

/// Makes the metadata-only form of a pod: as a slice of its bytes, by reordering a custom
/// resource's keys, or by converting a custom resource to protobuf.
#[divan::bench(args = ["slice", "order", "protobuf"])]
fn metadata_only(bencher: Bencher<'_, '_>, how: &str) {
    let pod = large_pod(how != "slice");
    let format = match how {
        "protobuf" => WireFormat::Protobuf,
        _ => WireFormat::Json,
    };
    let encoder = Encoder::new(WireFormat::Json, "Pod", "v1").partial(format, MetaVersion::V1);
    bencher
        .counter(BytesCount::new(pod.body.len()))
        .bench_local(|| encoder.object_body(&pod).len());
}

/// Indents a JSON pod of about 10 KiB.
#[divan::bench]
fn indent(bencher: Bencher<'_, '_>) {
    let pod = large_pod(true);
    bencher
        .counter(BytesCount::new(pod.body.len()))
        .bench_local(|| codec::indented(&pod.body).len());
}
