//! Tests which chunks are kept, and for how long.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::advance;

use super::*;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::WireFormat;
use crate::codec::Encoder;
use crate::codec::Representation;
use crate::server::deliver::gzip::member;
use crate::shutdown;

fn cache(limits: Limits) -> InitialChunkCache {
    let metrics = InitialChunkMetrics::new(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    InitialChunkCache::with_limits(limits, metrics, shutdown)
}

fn roomy() -> InitialChunkCache {
    cache(Limits {
        bytes: MAX_BYTES,
        starts: MAX_STARTS,
    })
}

fn key(encoder: &Arc<Encoder>, version: u64) -> ListKey {
    ListKey {
        encoder: Arc::clone(encoder),
        epoch: 0,
        resource_version: ResourceVersion(version),
        objects: 1,
        representation: Representation::plain(WireFormat::Json),
        selection: Selection::default(),
        after: None,
        limit: None,
        printed: None,
    }
}

fn encoder() -> Arc<Encoder> {
    Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1"))
}

fn chunk() -> io::Result<InitialChunk> {
    let member = member::compressed(&[Bytes::from_static(b"text")])?;
    Ok(InitialChunk::for_test(member))
}

/// True if the chunk was made now.
fn read(cache: &InitialChunkCache, key: &ListKey, number: usize) -> bool {
    cache.chunk(key, number, chunk).expect("no failure").1
}

fn bytes(cache: &InitialChunkCache) -> i64 {
    cache.inner.metrics.bytes.get()
}

#[tokio::test(start_paused = true)]
async fn threads_that_need_a_chunk_at_the_same_time_make_it_once() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let made = AtomicUsize::new(0);
    let runtime = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let _runtime = runtime.enter();
                for number in 0..100 {
                    let make = || {
                        made.fetch_add(1, Ordering::Relaxed);
                        chunk()
                    };
                    cache.chunk(&key, number, make).expect("no failure");
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 100);
    let counted = |how| cache.inner.metrics.chunks.with_label_values(&[how]).get();
    assert_eq!((counted("compressed"), counted("shared")), (100, 700));
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
    // Chunks of the same objects are kept together.
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
    let cache = cache(Limits {
        bytes: 3 * each,
        starts: 2,
    });
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
    let cache = cache(Limits {
        bytes: 1,
        starts: 2,
    });
    let key = key(&encoder(), 1);
    assert!(read(&cache, &key, 0) && read(&cache, &key, 0));
    assert_eq!(bytes(&cache), 0);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_could_not_be_made_is_made_by_the_next_watch() {
    let (cache, key) = (roomy(), key(&encoder(), 1));
    let failed = cache.chunk(&key, 0, || Err(io::Error::other("broken")));
    assert!(failed.is_err());
    assert!(read(&cache, &key, 0));
}
