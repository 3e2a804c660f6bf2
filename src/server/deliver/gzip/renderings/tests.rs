//! Renderings as their clients see them.

use std::io::Read;

use flate2::read::GzDecoder;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use tokio::time::sleep;

use super::*;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ObjectValues;
use crate::api::WireFormat;
use crate::body;
use crate::shutdown;

fn encoder() -> Arc<Encoder> {
    Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1"))
}

/// A list at `version` of `count` pods of 10 KiB, none of which can be compressed much.
fn chunks(encoder: &Encoder, version: u64, count: usize) -> Chunks<ListParts> {
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
    let parts = encoder.list_parts(ResourceVersion(version), None, None, items);
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
            view: crate::codec::View::Whole,
            indent: false,
        },
        selection: Selection::default(),
        after: None,
        limit: None,
    }
}

fn renderings(limits: Limits) -> Renderings {
    let metrics = RenderingMetrics::new(&Registry::new());
    let shutdown = Shutdown::new(shutdown::Config::default());
    Renderings::with_limits(limits, metrics, shutdown)
}

fn roomy() -> Renderings {
    renderings(Limits {
        bytes: MAX_BYTES,
        kept: MAX_KEPT,
    })
}

fn counted(renderings: &Renderings, how: &str) -> u64 {
    let metrics = &renderings.shared.metrics;
    metrics.lists.with_label_values(&[how]).get()
}

fn plain(chunks: Chunks<ListParts>) -> Vec<u8> {
    chunks.flatten().collect()
}

async fn decoded(body: Body) -> Vec<u8> {
    let gzip = body.collect().await.expect("no failure").to_bytes();
    let mut plain = Vec::new();
    let read = GzDecoder::new(&gzip[..]).read_to_end(&mut plain);
    read.expect("gzip to the end");
    plain
}

/// Waits until `condition` holds, which a thread of its own brings about.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_herd_costs_one_rendering() {
    let renderings = roomy();
    let encoder = encoder();
    let list = chunks(&encoder, 1, 30);
    let text = plain(list.clone());
    let bodies: Vec<_> = (0..50)
        .map(|_| decoded(renderings.render(key(&encoder, 1), list.clone(), false)))
        .collect();
    for body in join_all(bodies).await {
        assert!(body == text);
    }
    assert_eq!(counted(&renderings, "rendered"), 1);
    assert_eq!(counted(&renderings, "shared"), 49);
    // Who comes after its end, too.
    let found = renderings.get(&key(&encoder, 1)).expect("kept");
    assert!(decoded(found.body).await == text);
}

#[tokio::test]
async fn whatever_differs_is_another_list() {
    let renderings = roomy();
    let encoder = encoder();
    let first = key(&encoder, 1);
    let body = renderings.render(first.clone(), chunks(&encoder, 1, 30), true);
    let found = renderings.get(&first.clone()).expect("the same");
    assert!(found.has_more);
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
            other(&|key| key.selection.namespace = Some("a".into())),
        ),
        ("place", other(&|key| key.after = Some("a".into()))),
        ("limit", other(&|key| key.limit = Some(1))),
    ] {
        assert!(renderings.get(&key).is_none(), "{what}");
    }
    let second = renderings.render(key(&encoder, 2), chunks(&encoder, 2, 30), false);
    assert!(decoded(second).await == plain(chunks(&encoder, 2, 30)));
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
    assert_eq!(counted(&renderings, "rendered"), 2);
}

#[tokio::test]
async fn what_nobody_reads_any_more_is_given_up() {
    let renderings = roomy();
    let encoder = encoder();
    let metrics = renderings.shared.metrics.clone();
    // Before its turn, and while it is compressed.
    for has_begun in [false, true] {
        let body = renderings.render(key(&encoder, 1), chunks(&encoder, 1, 1000), false);
        if has_begun {
            until(|| metrics.held() > 0).await;
        }
        drop(body);
        until(|| renderings.shared.kept.lock().is_empty()).await;
        until(|| metrics.held() == 0).await;
    }
    // Whoever asks then gets a new one.
    let body = renderings.render(key(&encoder, 1), chunks(&encoder, 1, 30), false);
    assert!(decoded(body).await == plain(chunks(&encoder, 1, 30)));
}

#[tokio::test]
async fn one_that_leaves_does_not_disturb_the_others() {
    let renderings = roomy();
    let encoder = encoder();
    let mut bodies: Vec<_> = (0..3)
        .map(|_| renderings.render(key(&encoder, 1), chunks(&encoder, 1, 200), false))
        .collect();
    let mut leaving = bodies.remove(0);
    leaving.frame().await.expect("a frame").expect("no failure");
    drop(leaving);
    for body in bodies {
        assert!(decoded(body).await == plain(chunks(&encoder, 1, 200)));
    }
}

#[tokio::test]
async fn too_long_to_be_kept_each_compresses_the_rest() {
    let renderings = renderings(Limits {
        bytes: 2 * OUTPUT,
        kept: MAX_KEPT,
    });
    let encoder = encoder();
    let text = plain(chunks(&encoder, 1, 100));
    let bodies: Vec<_> = (0..3)
        .map(|_| renderings.render(key(&encoder, 1), chunks(&encoder, 1, 100), false))
        .collect();
    let metrics = &renderings.shared.metrics;
    until(|| renderings.shared.kept.lock().is_empty()).await;
    // Nothing was read yet, and it went no further than the limit and what was being made.
    assert!(metrics.held() <= 4 * OUTPUT, "{}", metrics.held());
    // Meanwhile there is no room for another.
    let alone = renderings.render(key(&encoder, 2), chunks(&encoder, 2, 100), false);
    assert_eq!(counted(&renderings, "alone"), 1);
    assert!(decoded(alone).await == plain(chunks(&encoder, 2, 100)));
    for body in bodies {
        assert!(decoded(body).await == text);
    }
    assert_eq!(metrics.held(), 0);
}

#[tokio::test]
async fn the_longest_unasked_for_makes_room() {
    let renderings = renderings(Limits {
        bytes: MAX_BYTES,
        kept: 2,
    });
    let encoder = encoder();
    for version in 1..=2 {
        let body = renderings.render(key(&encoder, version), chunks(&encoder, version, 30), false);
        decoded(body).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(renderings.get(&key(&encoder, 1)).is_some());
    let third = renderings.render(key(&encoder, 3), chunks(&encoder, 3, 30), false);
    assert!(renderings.get(&key(&encoder, 1)).is_some());
    assert!(renderings.get(&key(&encoder, 2)).is_none());
    decoded(third).await;
}

#[tokio::test(start_paused = true)]
async fn kept_for_seconds_after_it_was_asked_for() {
    let renderings = roomy();
    let encoder = encoder();
    let key = key(&encoder, 1);
    decoded(renderings.render(key.clone(), chunks(&encoder, 1, 30), false)).await;
    sleep(KEPT_FOR_ONE - Duration::from_millis(10)).await;
    assert!(renderings.get(&key).is_some());
    sleep(KEPT_FOR - Duration::from_millis(10)).await;
    assert!(renderings.shared.kept.lock().contains_key(&key));
    sleep(Duration::from_millis(20)).await;
    assert!(renderings.shared.kept.lock().is_empty());
    assert_eq!(renderings.shared.metrics.held(), 0);
}

#[tokio::test]
async fn who_waits_is_told_when_it_is_given_up() {
    let renderings = roomy();
    let encoder = encoder();
    let rendering = Arc::new(Rendering::new(renderings.shared.metrics.bytes.clone()));
    let mut body = body::boxed(rendering.read());
    assert!(body.frame().now_or_never().is_none());
    drop(Producer {
        shared: Arc::clone(&renderings.shared),
        key: key(&encoder, 1),
        rendering,
        chunks: chunks(&encoder, 1, 30),
    });
    let frame = body.frame().await.expect("not the end");
    assert_eq!(
        frame.expect_err("a failure").to_string(),
        "compressing the answer was given up"
    );
}
