//! Tests of the rules by which watches get events from a bridge and continue from the log.

use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use futures_util::FutureExt;

use crate::api::{EventType, LabelSelector, ResourceVersion, Selection, ShardSelector, Status};
use crate::cache::tests::support::{config, describe, drain, everything, object};
use crate::cache::{
    Bridge, BridgeItem, BridgeProgress, BridgeTotals, BridgeWriter, BridgedWatch, Config, Gap,
    GroupLimits, Reader, WatchError, WatchFrom, WatchStream, Writer, cache,
};

const LIMIT: usize = 1 << 20;

/// A cache whose first list is at `version`, with the object `a/x`.
fn listed_at(version: u64) -> (Writer, Reader) {
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 5, "web"));
    writer.replace(relist, ResourceVersion(version));
    (writer, reader)
}

fn bridge(reader: &Reader, version: u64) -> (BridgeWriter, Arc<Bridge>, BridgedWatch) {
    bridge_with(reader, version, LIMIT, Arc::default())
}

fn bridge_with(
    reader: &Reader,
    version: u64,
    limit: usize,
    totals: Arc<BridgeTotals>,
) -> (BridgeWriter, Arc<Bridge>, BridgedWatch) {
    Bridge::new(gap(reader, version).expect("a gap"), totals, limit)
}

fn join(bridge: &Arc<Bridge>, reader: &Reader, version: u64) -> Option<BridgedWatch> {
    bridge.watch(gap(reader, version).expect("a gap")).ok()
}

fn gap(reader: &Reader, version: u64) -> Option<Gap> {
    let gap = reader.gap(ResourceVersion(version), &everything());
    gap.expect("no limit for everything")
}

/// The upstream watch delivers a change of `a/x`.
fn push(bridge: &BridgeWriter, version: u64) -> BridgeProgress {
    let changed = object("a/x", "u", version, "web");
    bridge.push(
        EventType::Modified,
        changed,
        Bytes::from(format!("frame {version}")),
    )
}

/// The text of the next item, or `waits`. `stream` gets the stream of a watch that has joined.
fn next(watch: &mut BridgedWatch, stream: &mut Option<WatchStream>) -> String {
    let mut next = Box::pin(watch.next());
    match next.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Pending => "waits".to_owned(),
        std::task::Poll::Ready(item) => match item {
            BridgeItem::Change(event) => {
                let frame = event.frame(event.event_type, || panic!("the upstream's frame"));
                String::from_utf8(frame.to_vec()).expect("a text")
            }
            BridgeItem::Joined {
                stream: joined,
                bookmark,
            } => {
                *stream = Some(*joined);
                format!("joined, bookmark {:?}", bookmark.map(|at| at.0))
            }
            BridgeItem::Expired(status) => status.message,
            BridgeItem::Closed => "closed".to_owned(),
        },
    }
}

/// The texts of the items until the watch waits or has ended.
fn items(watch: &mut BridgedWatch) -> Vec<String> {
    items_and_stream(watch).0
}

fn items_and_stream(watch: &mut BridgedWatch) -> (Vec<String>, Option<WatchStream>) {
    let (mut texts, mut stream) = (Vec::new(), None);
    loop {
        let text = next(watch, &mut stream);
        let is_change = text.starts_with("frame");
        texts.push(text);
        if !is_change {
            return (texts, stream);
        }
    }
}

#[test]
fn only_old_versions_of_this_epoch_are_bridged() {
    let (mut writer, reader) = listed_at(20);
    let gap_at = |version| gap(&reader, version).is_some();
    assert!(gap_at(1) && gap_at(19));
    // The log serves 20, and 21 is ahead of the cache.
    assert!(!gap_at(20) && !gap_at(21));
    // A relist at 30 opens a hole; its ends are served.
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 25, "web"));
    writer.replace(relist, ResourceVersion(30));
    assert!(gap_at(21) && gap_at(29) && !gap_at(20) && !gap_at(30));
    // The upstream goes back to version 10: all versions up to 30 may belong to the old history.
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 5, "web"));
    writer.replace(relist, ResourceVersion(10));
    assert!((1..=40).all(|version| !gap_at(version)));
    // A closed cache, or one without a list, has no gaps.
    writer.close();
    assert!(!gap_at(1));
    let (_writer, empty) = cache(config());
    assert!(gap(&empty, 1).is_none());
}

#[test]
fn a_selection_over_the_limit_gets_no_bridge() {
    let groups = GroupLimits {
        unindexed: 1,
        ..GroupLimits::default()
    };
    let (mut writer, reader) = cache(Config { groups, ..config() });
    let list = writer.relist();
    writer.replace(list, ResourceVersion(20));
    let gap = |selector: &str| {
        let labels = LabelSelector::parse(selector).expect("a selector");
        let selection = Arc::new(Selection {
            labels,
            ..Selection::default()
        });
        reader.gap(ResourceVersion(7), &selection)
    };
    let first = gap("!a").expect("room").expect("a gap");
    assert_eq!(gap("!b").err(), Some(WatchError::TooManyUnindexed));
    // The same selection, and one that an index finds, have a place.
    assert!(gap("!a").is_ok() && gap("app=web").is_ok());
    // A watch that left the bridge still has its place, and gives it back when it is closed.
    let (upstream, _shared, mut watch) = Bridge::new(first, Arc::default(), LIMIT);
    upstream.open();
    assert_eq!(upstream.bookmark(ResourceVersion(20)), BridgeProgress::Done);
    let (texts, stream) = items_and_stream(&mut watch);
    assert_eq!(texts, ["joined, bookmark Some(20)"]);
    drop(watch);
    assert!(gap("!b").is_err());
    drop(stream);
    assert!(gap("!b").is_ok());
}

#[test]
fn a_bridge_ends_where_the_log_serves_all_its_watches() {
    let (mut writer, reader) = listed_at(20);
    let (upstream, shared, mut first) = bridge(&reader, 10);
    assert_eq!(items(&mut first), ["waits"]);
    assert_eq!(upstream.open(), ResourceVersion(10));
    assert_eq!(push(&upstream, 12), BridgeProgress::Continue);
    assert_eq!(items(&mut first), ["frame 12", "waits"]);
    assert_eq!(
        upstream.bookmark(ResourceVersion(19)),
        BridgeProgress::Continue
    );
    // A watch inside a hole that is opened now keeps the bridge open until the hole's end.
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 25, "web"));
    writer.replace(relist, ResourceVersion(30));
    let mut second = join(&shared, &reader, 26).expect("the bridge starts before 26");
    assert_eq!(
        push(&upstream, 25),
        BridgeProgress::Continue,
        "inside the hole"
    );
    assert_eq!(
        upstream.bookmark(ResourceVersion(29)),
        BridgeProgress::Continue
    );
    assert_eq!(upstream.bookmark(ResourceVersion(31)), BridgeProgress::Done);
    assert!(upstream.is_complete());
    let (texts, stream) = items_and_stream(&mut first);
    assert_eq!(texts, ["frame 25", "joined, bookmark Some(31)"]);
    assert_eq!(items(&mut second), ["joined, bookmark Some(31)"]);
    // The cache has only reached 30. The stream skips 31, of which its client has everything.
    let mut stream = stream.expect("joined");
    assert_eq!(describe(&drain(&mut stream)), Vec::<String>::new());
    for version in [31, 32] {
        let changed = object("a/x", "u", version, "web");
        writer
            .apply(EventType::Modified, changed, None)
            .expect("a newer version");
    }
    assert_eq!(describe(&drain(&mut stream)), ["MODIFIED a/x@32"]);
}

#[test]
fn a_bridge_that_starts_at_the_end_of_a_hole_waits_for_watches_above_it() {
    let (mut writer, reader) = listed_at(20);
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 25, "web"));
    writer.replace(relist, ResourceVersion(30));
    let (upstream, shared, mut older) = bridge(&reader, 10);
    let mut newer = join(&shared, &reader, 25).expect("not open yet");
    upstream.open();
    // The log serves 20, but at 20 the newer watch would get the event at 25 again.
    assert_eq!(
        upstream.bookmark(ResourceVersion(20)),
        BridgeProgress::Continue
    );
    push(&upstream, 25);
    assert_eq!(upstream.bookmark(ResourceVersion(30)), BridgeProgress::Done);
    assert_eq!(items(&mut older), ["frame 25", "joined, bookmark Some(30)"]);
    assert_eq!(items(&mut newer), ["joined, bookmark Some(30)"]);
}

#[test]
fn each_watch_gets_only_the_events_after_its_version() {
    let (_writer, reader) = listed_at(20);
    let (upstream, shared, mut oldest) = bridge(&reader, 14);
    // Clients lower the start until the upstream watch is opened.
    let mut older = join(&shared, &reader, 11).expect("not open yet");
    assert_eq!(upstream.open(), ResourceVersion(11));
    assert!(join(&shared, &reader, 10).is_none(), "it starts at 11");
    for version in [12, 14, 16] {
        push(&upstream, version);
    }
    let mut late = join(&shared, &reader, 15).expect("the buffer has all events after 15");
    assert_eq!(upstream.bookmark(ResourceVersion(20)), BridgeProgress::Done);
    let joined = "joined, bookmark Some(20)";
    assert_eq!(
        items(&mut older),
        ["frame 12", "frame 14", "frame 16", joined]
    );
    assert_eq!(items(&mut oldest), ["frame 16", joined]);
    assert_eq!(items(&mut late), ["frame 16", joined]);
    // A complete bridge still serves later clients, until its writer is dropped.
    let mut later = join(&shared, &reader, 12).expect("kept");
    assert_eq!(items(&mut later), ["frame 14", "frame 16", joined]);
    drop(upstream);
    assert!(join(&shared, &reader, 12).is_none());
}

#[test]
fn a_joined_watch_without_a_newer_bookmark_gets_none() {
    let (_writer, reader) = listed_at(20);
    let (upstream, _, mut watch) = bridge(&reader, 14);
    upstream.open();
    assert_eq!(push(&upstream, 20), BridgeProgress::Done);
    assert_eq!(items(&mut watch), ["frame 20", "joined, bookmark None"]);
}

#[test]
fn a_refused_version_does_not_harm_later_ones() {
    let (_writer, reader) = listed_at(20);
    let (upstream, shared, mut first) = bridge(&reader, 2);
    let mut others = [3, 4, 5, 6].map(|version| join(&shared, &reader, version).expect("a watch"));
    let refused =
        |version: u64| Status::failure(410, "Expired", format!("the upstream refuses {version}"));
    assert_eq!(upstream.open(), ResourceVersion(2));
    assert_eq!(upstream.refuse(refused(2), 1), Some(ResourceVersion(3)));
    assert_eq!(items(&mut first), ["the upstream refuses 2"]);
    assert_eq!(items(&mut others[0]), ["waits"]);
    assert_eq!(upstream.refuse(refused(3), 2), Some(ResourceVersion(5)));
    push(&upstream, 6);
    upstream.bookmark(ResourceVersion(20));
    let ends = others.each_mut().map(|watch| items(watch).join(", "));
    assert_eq!(
        ends,
        [
            "the upstream refuses 3",
            "the upstream refuses 3",
            "frame 6, joined, bookmark Some(20)",
            "joined, bookmark Some(20)",
        ]
    );
}

#[test]
fn a_refusal_after_some_events_ends_all_watches() {
    let (_writer, reader) = listed_at(20);
    let (upstream, shared, mut first) = bridge(&reader, 2);
    let mut second = join(&shared, &reader, 15).expect("a watch");
    upstream.open();
    push(&upstream, 10);
    let status = Status::failure(410, "Expired", "compacted");
    assert_eq!(upstream.refuse(status, 1), None);
    assert_eq!(items(&mut first), ["frame 10", "compacted"]);
    assert_eq!(items(&mut second), ["compacted"]);
}

#[test]
fn a_watch_that_falls_behind_the_buffer_expires() {
    let (_writer, reader) = listed_at(200);
    let totals = Arc::<BridgeTotals>::default();
    let (upstream, shared, mut quick) = bridge_with(&reader, 10, 2000, Arc::clone(&totals));
    let mut slow = join(&shared, &reader, 10).expect("a watch");
    upstream.open();
    for version in 11..100 {
        push(&upstream, version);
        assert_eq!(
            items(&mut quick),
            [format!("frame {version}"), "waits".to_owned()]
        );
    }
    assert!(
        totals.buffered_bytes() <= 2000,
        "{}",
        totals.buffered_bytes()
    );
    assert_eq!(items(&mut slow), ["too old resource version: 10 (200)"]);
    assert!(join(&shared, &reader, 11).is_none());
    assert!(join(&shared, &reader, 99).is_some());
    upstream.bookmark(ResourceVersion(200));
    assert_eq!(items(&mut quick), ["joined, bookmark Some(200)"]);
    assert_eq!((totals.joined(), totals.expired()), (1, 1));
    drop((upstream, shared, quick, slow));
    assert_eq!(totals.buffered_bytes(), 0);
}

#[test]
fn a_new_epoch_ends_the_bridge() {
    let (mut writer, reader) = listed_at(20);
    let (upstream, shared, mut watch) = bridge(&reader, 10);
    upstream.open();
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 5, "web"));
    writer.replace(relist, ResourceVersion(12));
    assert_eq!(push(&upstream, 30), BridgeProgress::Done);
    assert_eq!(
        items(&mut watch),
        ["frame 30", "too old resource version: 10 (12)"]
    );
    // A version that only the new epoch has needs a bridge of its own.
    let changed = object("a/x", "u", 40, "web");
    writer
        .apply(EventType::Modified, changed, None)
        .expect("a newer version");
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 45, "web"));
    writer.replace(relist, ResourceVersion(50));
    assert!(join(&shared, &reader, 45).is_none());
}

#[test]
fn an_epoch_that_ends_between_the_bridge_and_the_log_expires_the_watch() {
    let (mut writer, reader) = listed_at(20);
    let (upstream, _, mut watch) = bridge(&reader, 10);
    upstream.open();
    assert_eq!(push(&upstream, 25), BridgeProgress::Done);
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 5, "web"));
    writer.replace(relist, ResourceVersion(12));
    assert_eq!(
        items(&mut watch),
        ["frame 25", "too old resource version: 25 (12)"]
    );
}

#[test]
fn events_of_another_history_end_the_bridge() {
    let (_writer, reader) = listed_at(20);
    let (upstream, _, mut watch) = bridge(&reader, 10);
    upstream.open();
    push(&upstream, 15);
    assert_eq!(push(&upstream, 14), BridgeProgress::Done);
    assert_eq!(
        items(&mut watch),
        ["frame 15", "too old resource version: 10 (20)"]
    );
}

#[test]
fn a_bridge_that_gives_up_expires_its_watches_and_a_closed_cache_ends_them() {
    let (writer, reader) = listed_at(20);
    let (upstream, shared, mut watch) = bridge(&reader, 10);
    drop(upstream);
    assert_eq!(items(&mut watch), ["too old resource version: 10 (20)"]);
    assert!(join(&shared, &reader, 10).is_none());
    let (upstream, _, mut watch) = bridge(&reader, 10);
    let (complete, _, mut late) = bridge(&reader, 10);
    complete.open();
    complete.bookmark(ResourceVersion(20));
    upstream.open();
    writer.close();
    assert_eq!(push(&upstream, 12), BridgeProgress::Done);
    assert_eq!(items(&mut watch), ["frame 12", "closed"]);
    assert_eq!(items(&mut late), ["closed"]);
}

#[tokio::test]
async fn an_abandoned_bridge_accepts_no_more_watches() {
    let (_writer, reader) = listed_at(20);
    let (upstream, shared, first) = bridge(&reader, 10);
    let second = join(&shared, &reader, 11).expect("a watch");
    drop(first);
    assert!(upstream.abandoned().now_or_never().is_none());
    drop(second);
    upstream.abandoned().await;
    assert!(join(&shared, &reader, 11).is_none());
    // A stream that begins at the tip is not affected.
    assert!(reader.watch(WatchFrom::Tip, everything()).is_ok());
}

#[test]
fn a_bridge_gives_each_watch_its_shard() {
    let (_writer, reader) = listed_at(30);
    let shard = |start: &str, end: &str| {
        let text = format!("shardRange(object.metadata.uid, '{start}', '{end}')");
        Arc::new(Selection {
            shard: Some(ShardSelector::parse(&text).expect("a selector")),
            ..Selection::default()
        })
    };
    let half = "0x8000000000000000";
    let shards = [
        shard("0x0000000000000000", half),
        shard(half, "0x10000000000000000"),
    ];
    let gap = |selection| {
        let gap = reader.gap(ResourceVersion(10), selection);
        gap.expect("is below the limit").expect("a gap")
    };
    let (bridge, shared, low) = Bridge::new(gap(&shards[0]), Arc::default(), LIMIT);
    let high = shared.watch(gap(&shards[1]));
    let mut watches = [low, high.ok().expect("the bridge was not opened yet")];
    bridge.open();
    // The hash of `test` begins with f, and that of `u5` is below the half.
    for (uid, version) in [("test", 11), ("u5", 12), ("test", 13)] {
        let changed = object(&format!("a/{uid}"), uid, version, "web");
        let frame = Bytes::from(format!("frame {uid} {version}"));
        bridge.push(EventType::Modified, changed, frame);
    }
    bridge.bookmark(ResourceVersion(30));
    let found = watches.each_mut().map(items);
    assert_eq!(found[0], ["frame u5 12", "joined, bookmark Some(30)"]);
    assert_eq!(
        found[1],
        [
            "frame test 11",
            "frame test 13",
            "joined, bookmark Some(30)"
        ]
    );
}

/// Other tasks get their turn while a watch skips thousands of events, and no event is lost.
#[test]
fn a_watch_yields_while_it_skips_the_events_of_other_shards() {
    let (_writer, reader) = listed_at(5_000);
    let text = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    let selection = Arc::new(Selection {
        shard: Some(ShardSelector::parse(text).expect("a selector")),
        ..Selection::default()
    });
    let gap = reader.gap(ResourceVersion(10), &selection);
    let gap = gap.expect("is below the limit").expect("a gap");
    let (bridge, _shared, mut watch) = Bridge::new(gap, Arc::default(), 64 * LIMIT);
    bridge.open();
    // The hash of `test` begins with f, and that of `u5` is below the half.
    let versions = 11..4_000;
    for version in versions.clone() {
        let uid = if version + 1 < versions.end {
            "test"
        } else {
            "u5"
        };
        let changed = object(&format!("a/{uid}"), uid, version, "web");
        let frame = Bytes::from(format!("frame {version}"));
        bridge.push(EventType::Modified, changed, frame);
    }
    let mut stream = None;
    assert_eq!(next(&mut watch, &mut stream), "waits");
    assert_eq!(next(&mut watch, &mut stream), "frame 3999");
}
