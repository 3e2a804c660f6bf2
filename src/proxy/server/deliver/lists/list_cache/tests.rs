//! Tests of cached lists, as their clients see them.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use http_body_util::BodyExt;
use kubefan_core::api::{
    EventType, HashedSelection, Object, ObjectKey, ObjectValues, ResourceVersion, Selection,
    WireFormat,
};
use kubefan_core::body::Body;
use kubefan_core::cache::{Config, Reader, Writer, cache};
use kubefan_core::codec::{Encoder, KeptRows, MetaVersion, Representation, RowMemory, View};
use kubefan_core::shutdown;
use tokio::time::sleep;

use super::*;
use crate::ledger;
use crate::ledger::Ledger;
use crate::server::answers::answer::Shown;
use crate::server::cached::collection::PrintedList;
use crate::server::decide::Page;
use crate::server::deliver::lists::kept_lists::{CURRENT_TTL, MAX_LISTS, PAST_TTL};
use crate::server::deliver::{COMPRESSOR_BYTES, RoomForBodies};

const SHOWN: Shown = Shown {
    objects: 30,
    bytes: 300_000,
};

fn encoder() -> Arc<Encoder> {
    Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1"))
}

/// Makes a list at `version` of `count` pods of 10 KiB each, which hardly compress.
fn parts(encoder: &Encoder, version: u64, count: usize) -> ListParts<ListBodies> {
    let mut state = 7_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b"0123456789abcdef"[(state >> 28) as usize])
    });
    let noise: String = noise.take(50_000).collect();
    let items = (0..count).map(|number| {
        let name = format!("pod-{number}");
        let noise = &noise[number % 40_000..][..10_000];
        let body = format!("\"metadata\":{{\"name\":\"{name}\"}},\"noise\":\"{noise}\"}}");
        let key = ObjectKey::new(Some("shop"), &name);
        let values = ObjectValues::default();
        Arc::new(Object::new(key, ResourceVersion(1), &values, body.into()))
    });
    let mut list = encoder.list_items();
    for item in items {
        list.push(&item);
    }
    let bodies = list.take_bodies().expect("all are kept");
    let bodies = RoomForBodies::new(true, None).holding(bodies);
    list.finish(ResourceVersion(version).into(), bodies)
}

fn chunks(encoder: &Encoder, version: u64, count: usize) -> Chunks<ListParts<ListBodies>> {
    let parts = parts(encoder, version, count);
    let length = parts.length();
    Chunks::new(parts, length)
}

fn key(encoder: &Arc<Encoder>, version: u64) -> ListKey {
    ListKey {
        encoder: Arc::clone(encoder),
        epoch: 0,
        resource_version: ResourceVersion(version),
        objects: 1,
        representation: Representation::plain(WireFormat::Json),
        selection: HashedSelection::new(Arc::default()),
        page: Page::default(),
        printed: None,
        is_gzip: true,
    }
}

/// The key of a list of metadata for a client that does not accept gzip.
fn text_key(encoder: &Arc<Encoder>, version: u64) -> ListKey {
    ListKey {
        representation: Representation {
            view: View::Metadata(MetaVersion::V1),
            ..Representation::plain(WireFormat::Json)
        },
        is_gzip: false,
        ..key(encoder, version)
    }
}

fn list_cache(bytes: usize, lists: usize) -> ListCache {
    let sent = ListCounters::new(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    let budget = Budget::for_tests(bytes);
    let mut cache = ListCache::new(budget, sent, shutdown);
    let kept = Arc::get_mut(&mut cache.kept);
    kept.expect("the only reference").max_lists = lists;
    cache
}

fn roomy() -> ListCache {
    list_cache(64 << 20, MAX_LISTS)
}

fn counted(cache: &ListCache, how: &str) -> u64 {
    cache.sent.gzip.with_label_values(&[how]).get()
}

fn counted_texts(cache: &ListCache, how: &str) -> u64 {
    cache.sent.text.with_label_values(&[how]).get()
}

fn is_empty(cache: &ListCache) -> bool {
    cache.kept.state.lock().lists.is_empty()
}

fn has(cache: &ListCache, key: &ListKey) -> bool {
    cache.kept.state.lock().lists.contains_key(key)
}

/// What is known of a list of the objects of `reader`.
fn info_of(reader: &Reader) -> ListInfo {
    ListInfo {
        has_more: true,
        shown: SHOWN,
        reader: reader.clone(),
    }
}

/// What is known of a list of objects that no cache has any more.
fn info() -> ListInfo {
    let (_writer, reader) = cache(Config::default());
    info_of(&reader)
}

fn object(version: u64) -> Object {
    let key = ObjectKey::new(Some("shop"), "pod");
    let body = r#""metadata":{"name":"pod"}}"#;
    let values = ObjectValues::default();
    Object::new(key, ResourceVersion(version), &values, body.into())
}

/// Makes a cache with one object at version 1.
fn one_object() -> (Writer, Reader) {
    let (mut writer, reader) = cache(Config::default());
    let mut relist = writer.relist();
    relist.add(object(1));
    writer.replace(relist, ResourceVersion(1));
    (writer, reader)
}

fn gzip(list: SharedList) -> Body {
    match list.bytes {
        ListBytes::Gzip(body) => body,
        ListBytes::Text(_) => panic!("not compressed"),
    }
}

fn text(list: SharedList) -> Vec<u8> {
    match list.bytes {
        ListBytes::Gzip(_) => panic!("compressed"),
        ListBytes::Text(chunks) => {
            let length = chunks.text_length();
            let text: Vec<u8> = chunks.flatten().collect();
            assert_eq!(length, text.len() as u64);
            text
        }
    }
}

/// Begins to make the list of `key`.
fn making(cache: &ListCache, key: &ListKey) -> Making {
    match cache.begin(key, None) {
        Begun::Make(making) => making,
        Begun::Found(_) => panic!("the list is in the cache"),
        Begun::Wait(_) => panic!("the list is being made"),
    }
}

/// Compresses `list`, of which `info` is known, unless the cache has the list of `key`.
fn compressed_of(
    cache: &ListCache,
    key: &ListKey,
    list: Chunks<ListParts<ListBodies>>,
    (info, account): (ListInfo, Option<&Arc<Account>>),
) -> Body {
    let making = match cache.begin(key, account) {
        Begun::Found(found) => return gzip(found),
        Begun::Make(making) => making,
        Begun::Wait(_) => panic!("no list is made for longer than this function"),
    };
    gzip(cache.compress(Some(making), list, info, account))
}

/// Compresses `list` unless the cache has the list of `key`.
fn compressed(cache: &ListCache, key: ListKey, list: Chunks<ListParts<ListBodies>>) -> Body {
    compressed_of(cache, &key, list, (info(), None))
}

/// Returns the list of `key`. If the cache does not have it, makes it from `parts`.
async fn text_of(cache: &ListCache, key: &ListKey, parts: ListParts<ListBodies>) -> Vec<u8> {
    let making = loop {
        match cache.begin(key, None) {
            Begun::Found(found) => return text(found),
            Begun::Make(making) => break making,
            Begun::Wait(waiting) => assert_eq!(waiting.end().await, None),
        }
    };
    let empty = cache.empty_text(Some(making), parts.length());
    let empty = empty.expect("enough memory");
    // Another request comes now.
    tokio::task::yield_now().await;
    text(cache.fill(empty, parts, info()).await)
}

fn plain(chunks: Chunks<ListParts<ListBodies>>) -> Vec<u8> {
    chunks.flatten().collect()
}

async fn decoded(body: Body) -> Vec<u8> {
    let gzip = body.collect().await.expect("no failure").to_bytes();
    let mut plain = Vec::new();
    let read = GzDecoder::new(&gzip[..]).read_to_end(&mut plain);
    read.expect("gzip to the end");
    plain
}

/// Waits until `condition` holds. It depends on the thread that compresses.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_compression() {
    let cache = roomy();
    let encoder = encoder();
    let list = chunks(&encoder, 1, 30);
    let text = plain(list.clone());
    let bodies: Vec<_> = (0..50)
        .map(|_| decoded(compressed(&cache, key(&encoder, 1), list.clone())))
        .collect();
    for body in join_all(bodies).await {
        assert!(body == text);
    }
    assert_eq!(counted(&cache, "rendered"), 1);
    assert_eq!(counted(&cache, "shared"), 49);
    // A client that asks after the end gets the cached list too.
    let found = cache.find(&key(&encoder, 1), None).expect("kept");
    assert!(decoded(gzip(found)).await == text);
}

#[tokio::test]
async fn any_difference_in_the_key_is_a_different_list() {
    let cache = roomy();
    let encoder = encoder();
    let first = key(&encoder, 1);
    let body = compressed(&cache, first.clone(), chunks(&encoder, 1, 30));
    let found = cache.find(&first.clone(), None).expect("the same");
    assert!(found.has_more);
    assert_eq!(found.shown, SHOWN);
    let printed = PrintedList {
        rows: Arc::new(KeptRows::new(Arc::new(RowMemory::new(0)))),
        second: 1,
    };
    let other = |change: &dyn Fn(&mut ListKey)| {
        let mut key = first.clone();
        change(&mut key);
        key
    };
    for (what, key) in [
        (
            "version",
            other(&|key| key.resource_version = ResourceVersion(2)),
        ),
        ("epoch", other(&|key| key.epoch = 1)),
        ("objects", other(&|key| key.objects = 2)),
        ("collection", other(&|key| key.encoder = self::encoder())),
        ("form", other(&|key| key.representation.indent = true)),
        (
            "scope",
            other(&|key| {
                let selection = Selection {
                    namespace: Some("a".into()),
                    ..Selection::default()
                };
                key.selection = HashedSelection::new(Arc::new(selection));
            }),
        ),
        ("place", other(&|key| key.page.after = Some("a".into()))),
        ("limit", other(&|key| key.page.limit = Some(1))),
        ("time", other(&|key| key.printed = Some(printed.clone()))),
        ("compression", other(&|key| key.is_gzip = false)),
    ] {
        assert!(cache.find(&key, None).is_none(), "{what}");
    }
    let second = compressed(&cache, key(&encoder, 2), chunks(&encoder, 2, 30));
    assert!(decoded(second).await == plain(chunks(&encoder, 2, 30)));
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
    assert_eq!(counted(&cache, "rendered"), 2);
}

#[tokio::test]
async fn a_stream_without_readers_is_aborted() {
    let cache = roomy();
    let encoder = encoder();
    let budget = cache.kept.budget.clone();
    // The reader leaves before the compression has begun, and then while it runs.
    for has_begun in [false, true] {
        let body = compressed(&cache, key(&encoder, 1), chunks(&encoder, 1, 1000));
        if has_begun {
            until(|| budget.used() > 0).await;
        }
        drop(body);
        until(|| is_empty(&cache)).await;
        until(|| budget.used() == 0).await;
    }
    // The next client gets a new list.
    let body = compressed(&cache, key(&encoder, 1), chunks(&encoder, 1, 30));
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
}

#[tokio::test]
async fn a_reader_that_leaves_does_not_disturb_the_others() {
    let cache = roomy();
    let encoder = encoder();
    let mut bodies: Vec<_> = (0..3)
        .map(|_| compressed(&cache, key(&encoder, 1), chunks(&encoder, 1, 200)))
        .collect();
    let mut leaving = bodies.remove(0);
    leaving.frame().await.expect("a frame").expect("no failure");
    drop(leaving);
    for body in bodies {
        assert!(decoded(body).await == plain(chunks(&encoder, 1, 200)));
    }
}

#[tokio::test]
async fn each_reader_compresses_the_rest_of_a_list_too_long_to_cache() {
    let cache = list_cache(2 * OUTPUT_CHUNK, MAX_LISTS);
    let encoder = encoder();
    let text = plain(chunks(&encoder, 1, 1_000));
    let bodies: Vec<_> = (0..3)
        .map(|_| compressed(&cache, key(&encoder, 1), chunks(&encoder, 1, 1_000)))
        .collect();
    let budget = &cache.kept.budget;
    until(|| is_empty(&cache)).await;
    // No client has read anything; the compression stopped soon after the limit.
    let held = budget.used();
    assert!(
        (2 * OUTPUT_CHUNK..=4 * OUTPUT_CHUNK).contains(&held),
        "{held}"
    );
    // While these bytes are held, there is no room for another list.
    let alone = compressed(&cache, key(&encoder, 2), chunks(&encoder, 2, 100));
    assert_eq!(counted(&cache, "alone"), 1);
    assert!(decoded(alone).await == plain(chunks(&encoder, 2, 100)));
    for body in bodies {
        assert!(decoded(body).await == text);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn the_least_recently_used_list_is_evicted() {
    let cache = list_cache(64 << 20, 2);
    let encoder = encoder();
    for version in 1..=2 {
        let body = compressed(
            &cache,
            key(&encoder, version),
            chunks(&encoder, version, 30),
        );
        decoded(body).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(cache.find(&key(&encoder, 1), None).is_some());
    let third = compressed(&cache, key(&encoder, 3), chunks(&encoder, 3, 30));
    assert!(cache.find(&key(&encoder, 1), None).is_some());
    assert!(cache.find(&key(&encoder, 2), None).is_none());
    decoded(third).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_stays_while_it_is_current_and_used() {
    const SWEEPS: Duration = Duration::from_millis(2_010);
    let (mut writer, reader) = one_object();
    let snapshot = reader.snapshot().expect("the cache is ready");
    let cache = roomy();
    let encoder = encoder();
    let current = ListKey {
        epoch: snapshot.epoch(),
        ..key(&encoder, 1)
    };
    let past = ListKey {
        objects: 2,
        ..current.clone()
    };
    let rows = Arc::new(KeptRows::new(Arc::new(RowMemory::new(0))));
    let table = ListKey {
        printed: Some(PrintedList { rows, second: 1 }),
        ..current.clone()
    };
    let keys = [&current, &past, &table];
    for key in keys {
        let list = chunks(&encoder, 1, 30);
        decoded(compressed_of(&cache, key, list, (info_of(&reader), None))).await;
    }
    assert_eq!(keys.map(|key| has(&cache, key)), [true; 3]);
    sleep(SWEEPS).await;
    assert_eq!(keys.map(|key| has(&cache, key)), [true, false, false]);
    sleep(CURRENT_TTL - SWEEPS - PAST_TTL).await;
    assert!(cache.find(&current, None).is_some());
    sleep(CURRENT_TTL - SWEEPS).await;
    assert!(has(&cache, &current));
    sleep(2 * SWEEPS).await;
    assert!(is_empty(&cache), "it was not used");
    // A later version ends the list sooner, even without a change. It does not end a list that a
    // proof has shown to be of that version.
    let proven = ListKey {
        resource_version: ResourceVersion(2),
        ..current.clone()
    };
    let keys = [&current, &proven];
    for key in keys {
        let list = chunks(&encoder, 1, 30);
        decoded(compressed_of(&cache, key, list, (info_of(&reader), None))).await;
    }
    sleep(SWEEPS).await;
    assert_eq!(keys.map(|key| has(&cache, key)), [true, true]);
    writer
        .bookmark(ResourceVersion(2))
        .expect("a newer version");
    sleep(SWEEPS).await;
    assert_eq!(keys.map(|key| has(&cache, key)), [false, true]);
    let changed = writer.apply(EventType::Modified, object(3), None);
    changed.expect("a newer version");
    sleep(SWEEPS).await;
    assert!(is_empty(&cache));
    assert_eq!(cache.kept.budget.used(), 0);
}

#[tokio::test]
async fn a_waiting_reader_gets_an_error_when_the_compression_gives_up() {
    let cache = roomy();
    let encoder = encoder();
    let stream = Arc::new(GzipStream::new(cache.kept.budget.gauge().clone()));
    let mut body = body::boxed(stream.new_reader(None));
    assert!(body.frame().now_or_never().is_none());
    drop(Compression {
        kept: Arc::clone(&cache.kept),
        key: key(&encoder, 1),
        stream,
        chunks: chunks(&encoder, 1, 30),
    });
    let frame = body.frame().await.expect("not the end");
    assert_eq!(
        frame.expect_err("a failure").to_string(),
        "compression of the answer was aborted"
    );
}

#[tokio::test]
async fn a_compressor_for_the_rest_of_a_list_is_charged_to_its_reader() {
    let encoder = encoder();
    let text = plain(chunks(&encoder, 1, 1_000));
    // The second connection has no memory for a compressor.
    for (connection_memory, fits) in [(4 << 20, true), (128 << 10, false)] {
        let cache = list_cache(2 * OUTPUT_CHUNK, MAX_LISTS);
        let limits = ledger::Limits::new(Some(1 << 30), Some(connection_memory), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let list = chunks(&encoder, 1, 1_000);
        let client = (info(), Some(&account));
        let mut body = compressed_of(&cache, &key(&encoder, 1), list, client);
        until(|| is_empty(&cache)).await;
        let mut read = Vec::new();
        let mut charged = 0;
        let end = loop {
            charged = charged.max(ledger.leased());
            match body.frame().await {
                Some(Ok(frame)) => read.extend_from_slice(frame.data_ref().expect("data")),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        assert_eq!(end, fits);
        assert_eq!(charged >= COMPRESSOR_BYTES, fits, "{charged}");
        let mut unpacked = Vec::new();
        let decoded = GzDecoder::new(&read[..]).read_to_end(&mut unpacked);
        // The received part of a list that failed is not a complete list.
        assert_eq!(decoded.is_ok(), fits);
        assert_eq!(unpacked == text, fits);
        drop((body, account));
        assert_eq!(ledger.leased(), 0);
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_text() {
    let cache = roomy();
    let encoder = encoder();
    let list = parts(&encoder, 1, 30);
    let expected = plain(chunks(&encoder, 1, 30));
    let key = text_key(&encoder, 1);
    // The client that asked first leaves.
    let first = text_of(&cache, &key, list.clone()).now_or_never();
    assert!(first.is_none() && is_empty(&cache));
    assert_eq!(cache.kept.budget.used(), 0);
    let texts = (0..50).map(|_| text_of(&cache, &key, list.clone()));
    for text in join_all(texts).await {
        assert!(text == expected);
    }
    let later = text_of(&cache, &key, list).await;
    assert!(later == expected);
    assert_eq!(counted_texts(&cache, "rendered"), 2);
    assert_eq!(counted_texts(&cache, "shared"), 50);
    assert_eq!(cache.kept.budget.used(), expected.len());
    // The snapshot has changed.
    let next = text_of(&cache, &text_key(&encoder, 2), parts(&encoder, 2, 30)).await;
    assert!(next == plain(chunks(&encoder, 2, 30)));
    assert_eq!(counted_texts(&cache, "rendered"), 3);
}

/// Returns `N` requests that wait for the list of `key`.
fn waiting<const N: usize>(
    cache: &ListCache,
    key: &ListKey,
) -> [BoxFuture<'static, Option<Unshared>>; N] {
    [(); N].map(|()| {
        let Begun::Wait(waiting) = cache.begin(key, None) else {
            panic!("nothing makes the list");
        };
        let mut end = waiting.end().boxed();
        assert!((&mut end).now_or_never().is_none());
        end
    })
}

#[tokio::test]
async fn one_of_those_that_wait_makes_the_list_if_its_maker_leaves() {
    let cache = roomy();
    let encoder = encoder();
    let (key, list) = (text_key(&encoder, 1), parts(&encoder, 1, 30));
    let expected = plain(chunks(&encoder, 1, 30));
    let mut first = text_of(&cache, &key, list.clone()).boxed();
    assert!((&mut first).now_or_never().is_none());
    let mut others: Vec<_> = (0..50)
        .map(|_| text_of(&cache, &key, list.clone()).boxed())
        .collect();
    for other in &mut others {
        assert!(other.now_or_never().is_none());
    }
    assert_eq!(counted_texts(&cache, "rendered"), 1);
    let used = cache.kept.budget.used();
    drop(first);
    for text in join_all(others).await {
        assert!(text == expected);
    }
    assert_eq!(counted_texts(&cache, "rendered"), 2);
    assert_eq!(counted_texts(&cache, "shared"), 49);
    assert_eq!(cache.kept.budget.used(), used);
    assert!(matches!(cache.begin(&key, None), Begun::Found(_)));
}

#[tokio::test]
async fn all_that_wait_learn_at_once_that_they_can_not_share_the_list() {
    let encoder = encoder();
    let key = text_key(&encoder, 1);
    for why in [Some(Unshared::Alone), Some(Unshared::Failed), None] {
        let cache = roomy();
        let making = making(&cache, &key);
        let waiting = waiting::<3>(&cache, &key);
        match why {
            Some(why) => making.end(why),
            None => drop(making),
        }
        for end in waiting {
            assert_eq!(end.now_or_never(), Some(why));
        }
        assert!(matches!(cache.begin(&key, None), Begun::Make(_)));
    }
}

#[tokio::test]
async fn those_that_wait_make_their_own_list_if_there_is_no_memory() {
    let encoder = encoder();
    let cache = list_cache(OUTPUT_CHUNK - 1, MAX_LISTS);
    let list = || chunks(&encoder, 1, 30);
    let gzip_key = key(&encoder, 1);
    let making_gzip = making(&cache, &gzip_key);
    let waiting_for_gzip = waiting::<2>(&cache, &gzip_key);
    let alone = cache.compress(Some(making_gzip), list(), info(), None);
    assert!(alone.has_compressor);
    assert!(decoded(gzip(alone)).await == plain(list()));
    let text_key = text_key(&encoder, 1);
    let making_text = making(&cache, &text_key);
    let waiting_for_text = waiting::<2>(&cache, &text_key);
    assert!(cache.empty_text(Some(making_text), 300_000).is_none());
    for end in waiting_for_gzip.into_iter().chain(waiting_for_text) {
        assert_eq!(end.now_or_never(), Some(Some(Unshared::Alone)));
    }
    // These lists are not in the cache.
    let own = cache.compress(None, list(), info(), None);
    assert!(own.has_compressor && cache.empty_text(None, 300_000).is_none());
    assert!(is_empty(&cache));
    assert_eq!(counted(&cache, "alone"), 2);
    assert_eq!(counted_texts(&cache, "alone"), 2);
}

#[tokio::test]
async fn the_oldest_text_that_no_client_reads_is_dropped_for_a_new_one() {
    let encoder = encoder();
    let length = parts(&encoder, 1, 30).length();
    let limit = usize::try_from(2 * length).expect("small");
    let cache = list_cache(limit, MAX_LISTS);
    let make = async |version| {
        let list = parts(&encoder, version, 30);
        let making = making(&cache, &text_key(&encoder, version));
        let empty = cache.empty_text(Some(making), list.length())?;
        Some(cache.fill(empty, list, info()).await)
    };
    let first = make(1).await.expect("room");
    drop(make(2).await.expect("room"));
    assert_eq!(cache.kept.budget.used(), limit);
    // The first one is older, but is being read.
    let third = make(3).await.expect("room");
    let versions = [1, 2, 3].map(|version| has(&cache, &text_key(&encoder, version)));
    assert_eq!(versions, [true, false, true]);
    assert!(make(4).await.is_none());
    assert_eq!(counted_texts(&cache, "alone"), 1);
    assert_eq!(cache.kept.budget.used(), limit);
    assert!(text(first) == plain(chunks(&encoder, 1, 30)));
    drop(third);
    assert!(make(4).await.is_some());
    assert!(!has(&cache, &text_key(&encoder, 1)));
    assert_eq!(cache.kept.budget.used(), limit);
    // A text that does not fit leaves the others where they are.
    let too_long = making(&cache, &text_key(&encoder, 5));
    let empty = cache.empty_text(Some(too_long), 2 * length + 1);
    assert!(empty.is_none() && has(&cache, &text_key(&encoder, 3)));
    let _reading = make(5).await.expect("room");
    assert!(make(6).await.is_some());
    let too_long = making(&cache, &text_key(&encoder, 7));
    let empty = cache.empty_text(Some(too_long), length + 1);
    assert!(empty.is_none() && has(&cache, &text_key(&encoder, 6)));
    assert_eq!(cache.kept.budget.used(), limit);
}
