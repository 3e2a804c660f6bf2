//! Tests which chunks stay in the cache, and for how long.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use kubefan_core::api::{
    HashedSelection, LabelOperator, LabelRequirement, LabelSelector, Object, ObjectValues,
    ResourceVersion, Selection, WireFormat,
};
use kubefan_core::cache::{InitialObjects, WatchFrom};
use kubefan_core::codec::{Encoder, Representation};
use kubefan_core::concurrency::Revocable;
use kubefan_core::{cache, shutdown};
use tokio::task::yield_now;
use tokio::time::advance;

use super::*;
use crate::server::cached::collection::Collection;
use crate::server::deliver::gzip::initial_chunk::MAX_EXAMINED;
use crate::server::deliver::gzip::initial_events::InitialEvents;
use crate::server::deliver::gzip::member;
use crate::server::deliver::gzip::member::LONGEST_AT_ONCE;
use crate::server::deliver::watch_body::tests::{TestCollection, object};

fn chunk_cache(bytes: usize, starts: usize) -> InitialChunkCache {
    let sent = chunk_counter(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    let budget = Budget::for_tests(bytes);
    let mut cache = InitialChunkCache::new(budget, sent, shutdown);
    let inner = Arc::get_mut(&mut cache.inner);
    inner.expect("the only reference").max_starts = starts;
    cache
}

fn roomy() -> InitialChunkCache {
    chunk_cache(32 << 20, MAX_STARTS)
}

fn key(encoder: &Arc<Encoder>, version: u64) -> Arc<ListKey> {
    Arc::new(list_key(encoder, version))
}

fn list_key(encoder: &Arc<Encoder>, version: u64) -> ListKey {
    ListKey {
        encoder: Arc::clone(encoder),
        epoch: 0,
        resource_version: ResourceVersion(version),
        objects: 1,
        representation: Representation::plain(WireFormat::Json),
        selection: HashedSelection::new(Arc::default()),
        page: Default::default(),
        printed: None,
        is_gzip: true,
    }
}

fn encoder() -> Arc<Encoder> {
    Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1"))
}

fn chunk() -> io::Result<InitialChunk> {
    let member = member::compressed(&[Bytes::from_static(b"text")])?;
    Ok(InitialChunk {
        member: Some(member),
        events: 1,
        length: 1,
        examined: 1,
        last: None,
        is_last: true,
    })
}

/// Returns the name of the object after which the chunk `number` begins in these tests.
fn after(number: usize) -> Option<ObjectKey> {
    (number > 0).then(|| ObjectKey::new(None, &number.to_string()))
}

/// Returns true if the chunk was made now.
fn read(cache: &InitialChunkCache, key: &Arc<ListKey>, number: usize) -> bool {
    let (making, is_new) = match cache.chunk(key, after(number), || async { chunk() }) {
        Found::Made(_) => return false,
        Found::Making(making) => (making, false),
        Found::New(making) => (making, true),
    };
    let made = making.now_or_never();
    assert!(made.expect("nothing to wait for").is_ok());
    is_new
}

fn bytes(cache: &InitialChunkCache) -> i64 {
    cache.inner.budget.gauge().get()
}

#[tokio::test(start_paused = true)]
async fn threads_that_need_a_chunk_at_the_same_time_make_it_once() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let made = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _runtime = runtime.enter();
                for number in 0..100 {
                    let made = Arc::clone(&made);
                    let make = || async move {
                        yield_now().await;
                        made.fetch_add(1, Ordering::Relaxed);
                        chunk()
                    };
                    match cache.chunk(&key, after(number), make) {
                        Found::Made(_) => {}
                        Found::Making(making) | Found::New(making) => {
                            let made = futures::executor::block_on(making);
                            assert!(made.is_ok());
                        }
                    }
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 100);
    let counted = |how| cache.inner.sent.with_label_values(&[how]).get();
    assert_eq!((counted("compressed"), counted("shared")), (100, 700));
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_with_a_chunk_that_another_one_has_left() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let work = || async {
        yield_now().await;
        chunk()
    };
    let Found::New(mut first) = cache.chunk(&key, None, work) else {
        panic!("nothing was made before");
    };
    assert!((&mut first).now_or_never().is_none());
    let Found::Making(second) = cache.chunk(&key, None, work) else {
        panic!("the first watch makes the chunk");
    };
    drop(first);
    assert!(second.await.is_ok());
    assert!(!read(&cache, &key, 0));
    assert!(bytes(&cache) > 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_no_watch_waits_for_ends() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let snapshot = Arc::new(());
    let held = Arc::clone(&snapshot);
    let make = || async move {
        let _held = held;
        pending().await
    };
    let Found::New(making) = cache.chunk(&key, None, make) else {
        panic!("nothing was made before");
    };
    assert_eq!(Arc::strong_count(&snapshot), 2);
    drop(making);
    assert_eq!(Arc::strong_count(&snapshot), 1);
    assert!(read(&cache, &key, 0));
}

#[tokio::test(start_paused = true)]
async fn chunks_are_kept_for_seconds_after_their_last_use() {
    let encoder = encoder();
    let (cache, one, other) = (roomy(), key(&encoder, 1), key(&encoder, 2));
    assert!(read(&cache, &one, 0) && read(&cache, &one, 1) && read(&cache, &other, 0));
    let each = bytes(&cache) / 3;
    assert!(each > 0);
    for _ in 0..10 {
        advance(TTL - Duration::from_millis(10)).await;
        assert!(!read(&cache, &one, 0));
    }
    tokio::task::yield_now().await;
    // Chunks of one snapshot and selection stay in the cache together.
    assert!(!read(&cache, &one, 1));
    assert_eq!(bytes(&cache), 2 * each);
    assert!(read(&cache, &other, 0));
    tokio::time::sleep(TTL + 2 * EXPIRY_PERIOD).await;
    assert_eq!(bytes(&cache), 0);
    assert!(!cache.inner.state.lock().is_expiring);
    // A task is started again for new ones.
    assert!(read(&cache, &one, 0));
    tokio::time::sleep(TTL + 2 * EXPIRY_PERIOD).await;
    assert_eq!(bytes(&cache), 0);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_beyond_the_limit_takes_the_place_of_the_first_one_that_is_used_least() {
    let encoder = encoder();
    let each = chunk().expect("no failure").bytes();
    let cache = chunk_cache(3 * each, 2);
    let [one, other, third] = [1, 2, 3].map(|version| key(&encoder, version));
    for number in 0..3 {
        assert!(read(&cache, &one, number));
    }
    advance(Duration::from_millis(1)).await;
    assert!(read(&cache, &other, 7));
    assert_eq!(bytes(&cache), 3 * each as i64);
    assert!(!read(&cache, &one, 1) && !read(&cache, &one, 2));
    advance(Duration::from_millis(1)).await;
    // The number of keys is limited too.
    assert!(!read(&cache, &other, 7));
    advance(Duration::from_millis(1)).await;
    assert!(read(&cache, &third, 0));
    assert_eq!(bytes(&cache), 2 * each as i64);
    assert!(read(&cache, &one, 1));
    assert!(!read(&cache, &third, 0));
    assert!(read(&cache, &other, 7));
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_larger_than_the_limit_is_not_kept() {
    let cache = chunk_cache(1, 2);
    let key = key(&encoder(), 1);
    assert!(read(&cache, &key, 0) && read(&cache, &key, 0));
    assert_eq!(bytes(&cache), 0);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_could_not_be_made_is_made_by_the_next_watch() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let broken = || async { Err(io::Error::other("broken")) };
    let Found::New(making) = cache.chunk(&key, None, broken) else {
        panic!("nothing was made before");
    };
    assert!(making.await.is_err());
    assert!(read(&cache, &key, 0));
}

/// Number of objects. One in [`DIVISOR`] is selected: so few that an index finds them.
const OBJECTS: usize = 5_000;
const DIVISOR: usize = 25;
/// Length of the names. A chunk of the selected objects is full after about 150 of them, and
/// without an index it ends earlier, because enough objects were examined.
const NAME: usize = 360;

/// Returns the initial objects of a watch of a new store. All stores have equal objects. The
/// selection of [`key_of_rare`] has some of them.
fn objects(indexed_labels: Vec<String>) -> Revocable<InitialObjects> {
    let (mut writer, reader) = cache::cache(cache::Config {
        indexed_labels,
        ..cache::Config::default()
    });
    let mut list = writer.relist();
    for number in 0..OBJECTS {
        let app = if number % DIVISOR == 0 { "rare" } else { "" };
        let values = ObjectValues {
            labels: vec![("app".into(), app.into())],
            ..ObjectValues::default()
        };
        let name = format!("{number:0NAME$}");
        let body = format!("\"metadata\":{{\"name\":\"{name}\"}}}}");
        let key = ObjectKey::new(None, &name);
        list.add(Object::new(key, ResourceVersion(1), &values, body.into()));
    }
    writer.replace(list, ResourceVersion(1));
    let watch = reader.watch(WatchFrom::Snapshot, Arc::default());
    let objects = watch.expect("the cache is ready").initial_objects();
    objects.expect("it begins with the objects")
}

fn key_of_rare(encoder: &Arc<Encoder>) -> ListKey {
    key_of("rare", encoder)
}

/// Returns the key of the objects with this value of the label `app`.
fn key_of(app: &str, encoder: &Arc<Encoder>) -> ListKey {
    let requirement = LabelRequirement {
        key: "app".to_owned(),
        operator: LabelOperator::In(vec![app.to_owned()]),
    };
    let labels = LabelSelector {
        requirements: vec![requirement],
    };
    let selection = Selection {
        labels,
        ..Selection::default()
    };
    ListKey {
        selection: HashedSelection::new(Arc::new(selection)),
        ..list_key(encoder, 1)
    }
}

async fn next(events: &mut InitialEvents) -> Arc<InitialChunk> {
    let next = poll_fn(|cx| events.poll_next(cx)).await;
    let next = next.expect("no failure");
    next.expect("nothing has revoked the objects").0
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_snapshot_with_other_indexes_leave_no_gap() {
    let collection = TestCollection::new();
    let key = key_of_rare(&collection.encoder());
    let (indexed, plain) = (objects(vec!["app".to_owned()]), objects(Vec::new()));
    let watch = |cache: &InitialChunkCache, objects: &Revocable<InitialObjects>| {
        let shown = Arc::clone(&collection) as Arc<dyn Collection>;
        InitialEvents::new(cache.clone(), key.clone(), objects.clone(), shown)
    };
    // The first chunk does not fit together with the second one, so only the second one stays in
    // the cache.
    let first = next(&mut watch(&roomy(), &objects(vec!["app".to_owned()]))).await;
    let cache = chunk_cache(first.bytes(), 2);
    let mut with_index = watch(&cache, &indexed);
    let mut without = watch(&cache, &plain);
    for _ in 0..2 {
        next(&mut with_index).await;
    }
    let mut chunks = vec![next(&mut without).await];
    assert_ne!(
        chunks[0].events, first.events,
        "they end at the same object"
    );
    while !chunks.last().is_some_and(|chunk| chunk.is_last) {
        chunks.push(next(&mut without).await);
    }
    let events = chunks.iter().map(|chunk| chunk.events).sum::<u64>();
    assert_eq!(events, (OBJECTS / DIVISOR) as u64);
}

#[tokio::test(start_paused = true)]
async fn chunks_without_a_selected_object_are_kept_and_passed_over() {
    let collection = TestCollection::new();
    let key = key_of("none", &collection.encoder());
    let cache = roomy();
    for round in 0..2 {
        let shown = Arc::clone(&collection) as Arc<dyn Collection>;
        let mut watch = InitialEvents::new(cache.clone(), key.clone(), objects(Vec::new()), shown);
        let mut examined = 0;
        loop {
            let chunk = next(&mut watch).await;
            assert!(chunk.member.is_none());
            assert_eq!((chunk.events, chunk.length), (0, 0));
            examined += chunk.examined;
            if chunk.is_last {
                break;
            }
            assert_eq!(chunk.examined, MAX_EXAMINED);
        }
        assert_eq!(examined, OBJECTS, "{round}");
    }
    let compressed = &cache.inner.sent;
    let chunks = OBJECTS.div_ceil(MAX_EXAMINED) as u64;
    for how in ["compressed", "shared"] {
        assert_eq!(compressed.with_label_values(&[how]).get(), chunks, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_chunk_of_a_long_object_is_made_in_turns() {
    const LENGTH: usize = 2 << 20;
    let collection = TestCollection::new();
    let mut list = collection.writer.lock().relist();
    list.add(object(&"x".repeat(LENGTH), 12));
    collection.writer.lock().replace(list, ResourceVersion(20));
    let watch = collection
        .reader()
        .watch(WatchFrom::Snapshot, Arc::default());
    let objects = watch.expect("the cache is ready").initial_objects();
    let shown = Arc::clone(&collection) as Arc<dyn Collection>;
    let key = list_key(&collection.encoder(), 20);
    let objects = objects.expect("it begins with the objects");
    let mut watch = InitialEvents::new(roomy(), key, objects, shown);
    let mut polls = 0;
    let chunk = poll_fn(|cx| {
        polls += 1;
        watch.poll_next(cx)
    });
    let Some((chunk, _)) = chunk.await.expect("no failure") else {
        panic!("nothing has revoked the objects");
    };
    assert!(chunk.length > LENGTH);
    assert!(polls > LENGTH / LONGEST_AT_ONCE, "{polls}");
}
