//! Tests of compressed watches, as their clients see them.

use std::io::Read;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use kubefan_core::api::{HashedSelection, ResourceVersion, WireFormat};
use kubefan_core::cache::{InitialObjects, WatchFrom};
use kubefan_core::codec::{IncludeObject, MetaVersion, Representation, View};
use kubefan_core::concurrency::Revocable;
use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use tokio::time::advance;

use super::*;
use crate::ledger::{Budget, Ledger, Limits};
use crate::server::cached::collection::Collection;
use crate::server::decide::WatchTerms;
use crate::server::deliver::ListKey;
use crate::server::deliver::gzip::{InitialChunkCache, chunk_counter};
use crate::server::deliver::watch_body::WatchSource;
use crate::server::deliver::watch_body::tests::{TestCollection, object};

/// Length of the names of the objects, so that a chunk has about sixty.
const NAME: usize = 1_000;

fn cache() -> InitialChunkCache {
    let sent = chunk_counter(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    InitialChunkCache::new(Budget::for_tests(32 << 20), sent, shutdown)
}

/// Makes a collection of `count` objects with the resource version 20.
fn collection(count: usize) -> Arc<TestCollection> {
    let collection = TestCollection::new();
    fill(&collection, count);
    collection
}

fn fill(collection: &TestCollection, count: usize) {
    let mut list = collection.writer.lock().relist();
    for number in 0..count {
        list.add(object(&format!("{number:0NAME$}"), 12));
    }
    collection.writer.lock().replace(list, ResourceVersion(20));
}

const TERMS: WatchTerms = WatchTerms {
    bookmarks: true,
    initial_events_end: true,
    timeout: Some(Duration::from_secs(10)),
};

fn plain(
    collection: &Arc<TestCollection>,
    view: View,
) -> (WatchBody, Option<Revocable<InitialObjects>>) {
    let stream = collection
        .reader()
        .watch(WatchFrom::Snapshot, Arc::default());
    let stream = stream.expect("the cache is ready");
    let objects = stream.initial_objects();
    let body = WatchBody::new(
        Arc::clone(collection) as Arc<dyn Collection>,
        WatchSource::Stream(stream),
        Representation {
            view,
            ..Representation::plain(WireFormat::Json)
        },
        TERMS,
        false,
        Shutdown::new(shutdown::Config::default()).watch_end(),
    );
    (body, objects)
}

fn gzip(
    collection: &Arc<TestCollection>,
    cache: &InitialChunkCache,
    account: Option<&Arc<Account>>,
) -> (GzipWatchBody, Revocable<InitialObjects>) {
    let (watch, objects) = plain(collection, View::Whole);
    let objects = objects.expect("it begins with the objects");
    let key = ListKey {
        is_gzip: true,
        encoder: collection.encoder(),
        epoch: 0,
        resource_version: collection.reader().applied().expect("a version"),
        objects: 0,
        representation: Representation::plain(WireFormat::Json),
        selection: HashedSelection::new(Arc::default()),
        page: Default::default(),
        printed: None,
    };
    let shown = Arc::clone(collection) as Arc<dyn Collection>;
    let initial = InitialEvents::new(cache.clone(), key, objects.clone(), shown);
    let body = GzipWatchBody::new(watch, Some(initial), account.cloned());
    (body, objects)
}

async fn frame<B>(body: &mut B) -> Option<Bytes>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let frame = body.frame().await?;
    Some(frame.expect("no failure").into_data().expect("data"))
}

async fn frames<B>(body: &mut B) -> Vec<Bytes>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let mut frames = Vec::new();
    while let Some(frame) = frame(body).await {
        frames.push(frame);
    }
    frames
}

fn decoded(gzip: &[u8]) -> String {
    let mut text = String::new();
    let read = MultiGzDecoder::new(gzip).read_to_string(&mut text);
    read.expect("complete members");
    text
}

#[tokio::test(start_paused = true)]
async fn the_text_is_that_of_a_plain_watch_and_ends_after_whole_events() {
    for count in [0, 1, 50, 700] {
        let collection = collection(count);
        let mut body = gzip(&collection, &cache(), None).0;
        let mut expected = plain(&collection, View::Whole).0;
        collection.add("later", 21);
        // Both end together.
        let (expected, chunks) = tokio::join!(frames(&mut expected), frames(&mut body));
        let expected = String::from_utf8(expected.concat()).expect("JSON");
        let mut sent = Vec::new();
        for chunk in chunks {
            sent.extend_from_slice(&chunk);
            let text = decoded(&sent);
            assert!(text.ends_with('\n') && expected.starts_with(&text));
        }
        assert!(decoded(&sent) == expected, "{count} objects");
        assert_eq!(expected.matches("\"ADDED\"").count(), count + 1);
        assert!(sent.len() < 2_000 + expected.len() / 5, "{}", sent.len());
    }
}

#[tokio::test(start_paused = true)]
async fn watches_of_one_snapshot_send_the_same_chunks() {
    let collection = collection(700);
    let cache = cache();
    let mut all = [0; 20].map(|_| gzip(&collection, &cache, None).0);
    let sent = join_all(all.iter_mut().map(frames)).await;
    let chunks = 700 / 60;
    for other in &sent[1..] {
        assert!(other.concat() == sent[0].concat());
        for (chunk, shared) in other.iter().zip(&sent[0]).take(chunks) {
            assert_eq!(chunk.as_ptr(), shared.as_ptr());
        }
    }
    // Another snapshot has separate chunks.
    collection.add("more", 21);
    let mut later = gzip(&collection, &cache, None).0;
    let later = frame(&mut later).await.expect("a chunk");
    assert_ne!(later.as_ptr(), sent[0][0].as_ptr());
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_thread_send_the_same_later_events() {
    let collection = collection(3);
    let cache = cache();
    let mut all = [0; 20].map(|_| gzip(&collection, &cache, None).0);
    for body in &mut all {
        let mut text = String::new();
        while !text.contains("BOOKMARK") {
            text += &decoded(&frame(body).await.expect("a chunk"));
        }
    }
    for version in 21..30 {
        collection.add(&format!("new-{version}"), version);
        let mut sent = Vec::new();
        for body in &mut all {
            sent.push(frame(body).await.expect("an event"));
        }
        assert!(decoded(&sent[0]).contains(&format!("new-{version}")));
        for other in &sent {
            assert_eq!(other.as_ptr(), sent[0].as_ptr());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_event_is_compressed_once_for_the_watches_of_a_thread() {
    let collection = collection(3);
    let cache = cache();
    let mut all = [0; 5].map(|_| gzip(&collection, &cache, None).0);
    for body in &mut all {
        let mut text = String::new();
        while !text.contains("BOOKMARK") {
            text += &decoded(&frame(body).await.expect("a chunk"));
        }
    }
    let name = "long".repeat(500_000);
    collection.add(&name, 21);
    let sent = join_all(all.iter_mut().map(frame)).await;
    let sent: Vec<Bytes> = sent
        .into_iter()
        .map(|frame| frame.expect("an event"))
        .collect();
    assert!(decoded(&sent[0]).contains(&name));
    for other in &sent {
        assert_eq!(other.as_ptr(), sent[0].as_ptr());
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_is_compressed_without_shared_chunks() {
    let collection = TestCollection::of_tables();
    fill(&collection, 700);
    let view = View::Table(MetaVersion::V1, IncludeObject::None);
    let watch = plain(&collection, view).0;
    let mut body = GzipWatchBody::new(watch, None, None);
    let text = decoded(&frames(&mut body).await.concat());
    assert_eq!(text.matches("\"ADDED\"").count(), 700);
    assert_eq!(text.matches("\"columnDefinitions\":[{").count(), 1);
    assert!(text.contains("initial-events-end"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_objects_were_revoked_expires() {
    let collection = collection(700);
    let (mut body, objects) = gzip(&collection, &cache(), None);
    frame(&mut body).await.expect("a chunk");
    objects.revoke();
    let rest = decoded(&frames(&mut body).await.concat());
    assert!(rest.starts_with("{\"type\":\"ERROR\""), "{rest}");
    assert!(rest.contains("\"code\":410"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_later_events_were_dropped_expires_at_once() {
    let collection = collection(700);
    let (mut body, _) = gzip(&collection, &cache(), None);
    frame(&mut body).await.expect("a chunk");
    let cause = kubefan_core::cache::EpochCause::WentBack;
    collection.writer.lock().new_epoch(cause);
    let rest = decoded(&frames(&mut body).await.concat());
    assert!(rest.starts_with("{\"type\":\"ERROR\""), "{rest}");
    assert!(rest.contains("\"code\":410"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_initial_events_at_a_whole_chunk() {
    let collection = collection(700);
    let (mut body, _) = gzip(&collection, &cache(), None);
    let first = frame(&mut body).await.expect("a chunk");
    assert!(decoded(&first).ends_with('\n'));
    advance(TERMS.timeout.expect("a timeout")).await;
    assert!(frame(&mut body).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_without_memory_ends_the_watch() {
    let collection = TestCollection::new();
    let mut list = collection.writer.lock().relist();
    // The name hardly compresses.
    let mut state = 7_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b"0123456789abcdef"[(state >> 28) as usize])
    });
    let name: String = noise.take(200_000).collect();
    list.add(object(&name, 12));
    collection.writer.lock().replace(list, ResourceVersion(20));
    let cache = cache();
    for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
        let limits = Limits {
            connection_memory,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let (mut body, _) = gzip(&collection, &cache, Some(&account));
        let first = frame(&mut body).await.expect("a chunk");
        let text = decoded(&first);
        assert_eq!(text.contains(&name), fits);
        assert_eq!(text.contains("\"code\":410"), !fits, "{connection_memory}");
        assert_eq!(ledger.leased() > 50 << 10, fits);
        let rest = frames(&mut body).await;
        assert_eq!(rest.is_empty(), !fits);
        drop((first, rest, body, account));
        assert_eq!(ledger.leased(), 0);
    }
}
