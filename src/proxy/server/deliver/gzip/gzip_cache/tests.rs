//! Tests of cached lists, as their clients see them.

use std::io::Read;

use flate2::read::GzDecoder;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use kubefan_core::api::{Object, ObjectKey, ObjectValues, Selection, WireFormat};
use kubefan_core::{body, shutdown};
use tokio::time::sleep;

use super::*;
use crate::ledger;
use crate::ledger::Ledger;
use crate::server::deliver::{COMPRESSOR_BYTES, RoomForBodies};

const SHOWN: Shown = Shown {
    objects: 30,
    bytes: 300_000,
};

fn encoder() -> Arc<Encoder> {
    Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1"))
}

/// Makes a list at `version` of `count` pods of 10 KiB each, which hardly compress.
fn chunks(encoder: &Encoder, version: u64, count: usize) -> Chunks<ListParts<ListBodies>> {
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
    let parts = list.finish(ResourceVersion(version).into(), bodies);
    let length = parts.length();
    Chunks::new(parts, length)
}

fn key(encoder: &Arc<Encoder>, version: u64) -> ListKey {
    ListKey {
        encoder: Arc::clone(encoder),
        epoch: 0,
        resource_version: ResourceVersion(version),
        objects: 1,
        representation: Representation {
            format: WireFormat::Json,
            view: kubefan_core::codec::View::Whole,
            indent: false,
        },
        selection: HashedSelection::new(Arc::default()),
        page: Page::default(),
        printed: None,
    }
}

fn cache(bytes: usize, lists: usize) -> GzipCache {
    let sent = list_counter(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    let budget = Budget::for_tests(bytes);
    let mut cache = GzipCache::new(budget, sent, shutdown);
    let inner = Arc::get_mut(&mut cache.inner);
    inner.expect("the only reference").max_lists = lists;
    cache
}

fn roomy() -> GzipCache {
    cache(64 << 20, MAX_LISTS)
}

fn counted(cache: &GzipCache, how: &str) -> u64 {
    cache.inner.sent.with_label_values(&[how]).get()
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
        .map(|_| {
            decoded(
                cache
                    .compress(
                        key(&encoder, 1),
                        list.clone(),
                        (false, Shown::default()),
                        None,
                    )
                    .body,
            )
        })
        .collect();
    for body in join_all(bodies).await {
        assert!(body == text);
    }
    assert_eq!(counted(&cache, "rendered"), 1);
    assert_eq!(counted(&cache, "shared"), 49);
    // A client that asks after the end gets the cached list too.
    let found = cache.get(&key(&encoder, 1), None).expect("kept");
    assert!(decoded(found.body).await == text);
}

#[tokio::test]
async fn any_difference_in_the_key_is_a_different_list() {
    let cache = roomy();
    let encoder = encoder();
    let first = key(&encoder, 1);
    let body = cache
        .compress(first.clone(), chunks(&encoder, 1, 30), (true, SHOWN), None)
        .body;
    let found = cache.get(&first.clone(), None).expect("the same");
    assert!(found.has_more);
    assert_eq!(found.shown, SHOWN);
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
    ] {
        assert!(cache.get(&key, None).is_none(), "{what}");
    }
    let second = cache
        .compress(
            key(&encoder, 2),
            chunks(&encoder, 2, 30),
            (false, Shown::default()),
            None,
        )
        .body;
    assert!(decoded(second).await == plain(chunks(&encoder, 2, 30)));
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
    assert_eq!(counted(&cache, "rendered"), 2);
}

#[tokio::test]
async fn a_stream_without_readers_is_aborted() {
    let cache = roomy();
    let encoder = encoder();
    let budget = cache.inner.budget.clone();
    // The reader leaves before the compression has begun, and then while it runs.
    for has_begun in [false, true] {
        let body = cache
            .compress(
                key(&encoder, 1),
                chunks(&encoder, 1, 1000),
                (false, Shown::default()),
                None,
            )
            .body;
        if has_begun {
            until(|| budget.used() > 0).await;
        }
        drop(body);
        until(|| cache.inner.cached.lock().is_empty()).await;
        until(|| budget.used() == 0).await;
    }
    // The next client gets a new list.
    let body = cache
        .compress(
            key(&encoder, 1),
            chunks(&encoder, 1, 30),
            (false, Shown::default()),
            None,
        )
        .body;
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
}

#[tokio::test]
async fn a_reader_that_leaves_does_not_disturb_the_others() {
    let cache = roomy();
    let encoder = encoder();
    let mut bodies: Vec<_> = (0..3)
        .map(|_| {
            cache
                .compress(
                    key(&encoder, 1),
                    chunks(&encoder, 1, 200),
                    (false, Shown::default()),
                    None,
                )
                .body
        })
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
    let cache = cache(2 * OUTPUT_CHUNK, MAX_LISTS);
    let encoder = encoder();
    let text = plain(chunks(&encoder, 1, 1_000));
    let bodies: Vec<_> = (0..3)
        .map(|_| {
            cache
                .compress(
                    key(&encoder, 1),
                    chunks(&encoder, 1, 1_000),
                    (false, Shown::default()),
                    None,
                )
                .body
        })
        .collect();
    let budget = &cache.inner.budget;
    until(|| cache.inner.cached.lock().is_empty()).await;
    // No client has read anything; the compression stopped soon after the limit.
    let held = budget.used();
    assert!(
        (2 * OUTPUT_CHUNK..=4 * OUTPUT_CHUNK).contains(&held),
        "{held}"
    );
    // While these bytes are held, there is no room for another list.
    let alone = cache
        .compress(
            key(&encoder, 2),
            chunks(&encoder, 2, 100),
            (false, Shown::default()),
            None,
        )
        .body;
    assert_eq!(counted(&cache, "alone"), 1);
    assert!(decoded(alone).await == plain(chunks(&encoder, 2, 100)));
    for body in bodies {
        assert!(decoded(body).await == text);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn the_least_recently_used_list_is_evicted() {
    let cache = cache(64 << 20, 2);
    let encoder = encoder();
    for version in 1..=2 {
        let body = cache
            .compress(
                key(&encoder, version),
                chunks(&encoder, version, 30),
                (false, Shown::default()),
                None,
            )
            .body;
        decoded(body).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(cache.get(&key(&encoder, 1), None).is_some());
    let third = cache
        .compress(
            key(&encoder, 3),
            chunks(&encoder, 3, 30),
            (false, Shown::default()),
            None,
        )
        .body;
    assert!(cache.get(&key(&encoder, 1), None).is_some());
    assert!(cache.get(&key(&encoder, 2), None).is_none());
    decoded(third).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_stays_cached_for_seconds_after_its_last_use() {
    let cache = roomy();
    let encoder = encoder();
    let key = key(&encoder, 1);
    decoded(
        cache
            .compress(
                key.clone(),
                chunks(&encoder, 1, 30),
                (false, Shown::default()),
                None,
            )
            .body,
    )
    .await;
    sleep(UNSHARED_TTL - Duration::from_millis(10)).await;
    assert!(cache.get(&key, None).is_some());
    sleep(SHARED_TTL - Duration::from_millis(10)).await;
    assert!(cache.inner.cached.lock().contains_key(&key));
    sleep(Duration::from_millis(20)).await;
    assert!(cache.inner.cached.lock().is_empty());
    assert_eq!(cache.inner.budget.used(), 0);
}

#[tokio::test]
async fn a_waiting_reader_gets_an_error_when_the_producer_gives_up() {
    let cache = roomy();
    let encoder = encoder();
    let stream = Arc::new(GzipStream::new(cache.inner.budget.gauge().clone()));
    let mut body = body::boxed(stream.new_reader(None));
    assert!(body.frame().now_or_never().is_none());
    drop(Producer {
        inner: Arc::clone(&cache.inner),
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
        let cache = cache(2 * OUTPUT_CHUNK, MAX_LISTS);
        let limits = ledger::Limits::new(Some(1 << 30), Some(connection_memory), 0);
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let list = chunks(&encoder, 1, 1_000);
        let mut body = cache
            .compress(
                key(&encoder, 1),
                list,
                (false, Shown::default()),
                Some(&account),
            )
            .body;
        until(|| cache.inner.cached.lock().is_empty()).await;
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
