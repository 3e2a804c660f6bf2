//! Tests which state answers a list, which lists have a next page, and which are made once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use kubefan_core::api::{
    EventType, Object, ObjectKey, ObjectValues, ResourceVersion, ShardSelector, WireFormat,
};
use kubefan_core::cache::{Config, Reader, Writer, cache};
use kubefan_core::codec::{Encoder, MetaVersion, Representation, View};
use kubefan_core::informer::{Proof, ProofMethod};
use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;

use super::{list_key, read, snapshot_for};
use crate::ledger::Budget;
use crate::net::ClientConnection;
use crate::server::cached::collection::Collection;
use crate::server::decide::tests::read_of;
use crate::server::decide::{Plan, Read};
use crate::server::deliver::{Delivery, ListCache, ListCounters, ListStart, Unshared};

/// A collection of the two pods `n/a` and `n/b`.
struct Pods {
    reader: Reader,
    encoder: Arc<Encoder>,
}

impl Collection for Pods {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }
}

/// Makes a cache at `version` of the two pods `n/a` and `n/b`.
pub(in crate::server) fn cache_at(version: u64) -> (Writer, Reader) {
    let (mut writer, reader) = cache(Config::default());
    let mut relist = writer.relist();
    for name in ["a", "b"] {
        let values = ObjectValues {
            uid: name.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(Some("n"), name);
        let body = format!(r#""metadata":{{"name":"{name}"}}}}"#);
        relist.add(Object::new(key, ResourceVersion(5), &values, body.into()));
    }
    writer.replace(relist, ResourceVersion(version));
    (writer, reader)
}

/// Plans a list with the parameters `query`, of a shard that has all objects.
pub(in crate::server) fn list_of_shard(query: &str) -> Read {
    let all = "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')";
    list(query).of_shard(ShardSelector::parse(all).expect("a selector"))
}

fn list(query: &str) -> Read {
    read_of(&format!("/api/v1/pods?{query}"))
}

#[test]
fn only_a_shard_is_told_that_its_version_is_not_reached() {
    let (_writer, reader) = cache_at(104);
    let found = |read: Read| {
        let snapshot = snapshot_for(&read, None, &reader);
        let version = snapshot.map(|snapshot| snapshot.resource_version().0);
        version.map_err(super::Reason::name)
    };
    for (version, of_shard, of_all) in [
        (103, Err("past_state"), Err("past_state")),
        (104, Ok(104), Ok(104)),
        (105, Err("ahead_of_cache"), Err("past_state")),
    ] {
        let query = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(found(list_of_shard(&query)), of_shard, "{version}");
        assert_eq!(found(list(&query)), of_all, "{version}");
    }
    let snapshot = reader.snapshot().expect("the cache is ready");
    reader.pin(&reader.proven_at(&snapshot, ResourceVersion(105), &Arc::default()));
    let exactly = "resourceVersion=105&resourceVersionMatch=Exact";
    assert_eq!(found(list_of_shard(exactly)), Ok(105));
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Listed {
    All,
    Shard,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Proven {
    Everything,
    Selection,
}

/// The lists that can be continued with a snapshot.
enum Answered {
    Each,
    OnlyOwn,
    Neither,
}

/// The API server continues a list if its snapshot is no longer pinned. It cannot continue the list
/// of a shard, so the first page of a shard needs a proof of all objects.
#[tokio::test]
async fn a_snapshot_is_kept_for_the_next_pages_of_what_is_proven() {
    let long: Vec<_> = (0..300).map(|number| format!("!b{number}")).collect();
    let long = long.join(",");
    let (short, long) = ("!a", long.as_str());
    // Each row: what is listed, its label selector, what is proven at its version, and the lists
    // with a next page that can be answered.
    for (listed, labels, proven, answered) in [
        (Listed::Shard, short, Proven::Everything, Answered::Each),
        (Listed::All, short, Proven::Everything, Answered::Each),
        (Listed::All, short, Proven::Selection, Answered::OnlyOwn),
        (Listed::All, long, Proven::Everything, Answered::Each),
        (Listed::All, long, Proven::Selection, Answered::Neither),
    ] {
        let (_writer, reader) = cache_at(104);
        let pods = pods(&reader);
        let planned = |query: &str| match listed {
            Listed::Shard => list_of_shard(query),
            Listed::All => list(query),
        };
        let first = planned(&format!("limit=1&labelSelector={labels}"));
        let Plan::List { proof_request, .. } = &first.plan else {
            panic!("{first:?}");
        };
        let needs_everything = listed == Listed::Shard;
        assert_eq!(proof_request.selection.is_everything(), needs_everything);
        let everything = Arc::default();
        let selection = match proven {
            Proven::Everything => &everything,
            Proven::Selection => &proof_request.selection,
        };
        let snapshot = reader.snapshot().expect("the cache is ready");
        let proof = Proof {
            snapshot: reader.proven_at(&snapshot, ResourceVersion(105), selection),
            method: ProofMethod::VerificationList,
            as_of: None,
            call: None,
        };
        let case = format!("{listed:?} {labels}, proven: {proven:?}");
        let page = answer(&first, &pods, Some(&proof)).await.expect(&case);
        assert_eq!(names(&page), ["a"], "{case}");
        assert_eq!(page["metadata"]["resourceVersion"], "105", "{case}");
        let token = page["metadata"]["continue"].as_str().expect(&case);
        let next = async |labels: &str| {
            let next = planned(&format!("limit=1&labelSelector={labels}&continue={token}"));
            let next = answer(&next, &pods, None).await?;
            assert_eq!(next["metadata"]["resourceVersion"], "105", "{case}");
            Some(names(&next))
        };
        let b = Some(vec!["b".to_owned()]);
        let (own, other) = match answered {
            Answered::Each => (b.clone(), b),
            Answered::OnlyOwn => (b, None),
            Answered::Neither => (None, None),
        };
        assert_eq!(next(labels).await, own, "{case}");
        assert_eq!(next("!c").await, other, "{case}");
        let kept = reader.snapshot_at(ResourceVersion(105), &everything);
        assert_eq!(kept.is_some(), proven == Proven::Everything, "{case}");
    }
}

fn pods(reader: &Reader) -> Arc<dyn Collection> {
    Arc::new(Pods {
        reader: reader.clone(),
        encoder: Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1")),
    })
}

/// Returns the list that answers `planned`; `None` if the API server must answer.
async fn answer(
    planned: &Read,
    pods: &Arc<dyn Collection>,
    proof: Option<&Proof>,
) -> Option<serde_json::Value> {
    let delivery = Delivery::plain(planned.representation);
    let body = body(planned, pods, proof, &delivery).await?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}

/// Returns the bytes of the list that answers `planned`; `None` if the API server must answer.
async fn body(
    planned: &Read,
    pods: &Arc<dyn Collection>,
    proof: Option<&Proof>,
    delivery: &Delivery<'_>,
) -> Option<Bytes> {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let answer = read(planned, pods, proof, delivery, &shutdown).await.ok()?;
    let body = answer.response.into_body().collect().await;
    Some(body.expect("a whole body").to_bytes())
}

fn names(list: &serde_json::Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items").iter();
    let names = items.map(|item| {
        item["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned()
    });
    names.collect()
}

/// Pods that count how often an answer is made from them.
struct CountedPods {
    reader: Reader,
    encoder: Arc<Encoder>,
    made: AtomicUsize,
}

impl Collection for CountedPods {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }

    fn encoder_for(&self, representation: Representation) -> Arc<Encoder> {
        self.made.fetch_add(1, Ordering::Relaxed);
        match representation.view {
            View::Metadata(version) => {
                Arc::new(self.encoder.partial(representation.format, version))
            }
            View::Whole | View::Table(..) => self.encoder(),
        }
    }
}

/// A pod with metadata of about 2 KiB.
fn large_pod(number: usize, version: u64) -> Object {
    let name = format!("pod-{number}");
    let key = ObjectKey::new(Some("n"), &name);
    let note = "x".repeat(2_000);
    let body = format!(
        r#""metadata":{{"name":"{name}","resourceVersion":"{version}","annotations":{{"a":"{note}"}}}}}}"#
    );
    Object::new(
        key,
        ResourceVersion(version),
        &ObjectValues::default(),
        body.into(),
    )
}

/// Makes a cache of 200 pods at version 1.
fn counted_pods() -> (Writer, Arc<CountedPods>) {
    let (mut writer, reader) = cache(Config::default());
    let mut relist = writer.relist();
    (0..200).for_each(|number| relist.add(large_pod(number, 1)));
    writer.replace(relist, ResourceVersion(1));
    let pods = CountedPods {
        reader,
        encoder: Arc::new(Encoder::new(WireFormat::Json, "Pod", "v1")),
        made: AtomicUsize::new(0),
    };
    (writer, Arc::new(pods))
}

fn list_cache() -> ListCache {
    ListCache::new(
        Budget::for_tests(64 << 20),
        ListCounters::new(&Registry::new()),
        Shutdown::new(shutdown::Config::default()),
    )
}

fn metadata(url: &str, indent: bool) -> Read {
    let mut read = read_of(url);
    read.representation.view = View::Metadata(MetaVersion::V1);
    read.representation.indent = indent;
    read
}

#[tokio::test]
async fn equal_lists_of_metadata_are_made_once_for_each_state() {
    let (mut writer, pods) = counted_pods();
    let made = || pods.made.swap(0, Ordering::Relaxed);
    let collection: Arc<dyn Collection> = pods.clone();
    let (lists, connection) = (list_cache(), ClientConnection::next());
    // The same list is first made for one client only.
    let alone = async |read: &Read| {
        let plain = Delivery::plain(read.representation);
        let body = body(read, &collection, None, &plain).await;
        assert_eq!(made(), 1);
        body.expect("a list")
    };
    let requests = [
        metadata("/api/v1/pods?resourceVersion=0", false),
        metadata("/api/v1/pods?resourceVersion=0", true),
        metadata("/api/v1/pods?resourceVersion=0&labelSelector=!a", false),
        metadata("/api/v1/namespaces/n/pods?resourceVersion=0", false),
    ];
    for version in 1..=2 {
        for read in &requests {
            let expected = alone(read).await;
            let delivery = Delivery::sharing(read.representation, &lists, &connection);
            let concurrent = (0..10).map(|_| body(read, &collection, None, &delivery));
            for shared in join_all(concurrent).await {
                assert!(shared.expect("a list") == expected, "at version {version}");
            }
            let later = body(read, &collection, None, &delivery).await;
            assert!(later.expect("a list") == expected);
            assert_eq!(made(), 1, "at version {version}");
        }
        let changed = writer.apply(EventType::Modified, large_pod(7, version + 1), None);
        changed.expect("a newer version");
    }
    // Complete objects are sent as the cache has them.
    let whole = read_of("/api/v1/pods?resourceVersion=0");
    let delivery = Delivery::sharing(whole.representation, &lists, &connection);
    for _ in 0..2 {
        let answered = body(&whole, &collection, None, &delivery).await;
        assert!(answered.is_some() && made() == 1);
    }
}

#[tokio::test]
async fn a_connection_without_a_turn_delays_no_other() {
    let (_writer, pods) = counted_pods();
    let collection: Arc<dyn Collection> = pods.clone();
    let lists = list_cache();
    let read = metadata("/api/v1/pods?resourceVersion=0", false);
    let busy = ClientConnection::next();
    let mut turns = Vec::new();
    while let Some(turn) = busy.turn().now_or_never() {
        turns.push(turn);
    }
    let delivery = Delivery::sharing(read.representation, &lists, &busy);
    let mut waiting = Box::pin(body(&read, &collection, None, &delivery));
    assert!((&mut waiting).now_or_never().is_none());
    let other = ClientConnection::next();
    let other = Delivery::sharing(read.representation, &lists, &other);
    let made = body(&read, &collection, None, &other).await;
    let made = made.expect("a list");
    assert!((&mut waiting).now_or_never().is_none());
    drop(turns);
    assert!(waiting.await.expect("a list") == made);
    assert_eq!(pods.made.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_list_has_one_maker_until_it_can_not_be_shared() {
    let (_writer, pods) = counted_pods();
    let lists = list_cache();
    let read = metadata("/api/v1/pods?resourceVersion=0", false);
    let Plan::List {
        selection, page, ..
    } = &read.plan
    else {
        panic!("{read:?}");
    };
    let snapshot = pods.reader.snapshot().expect("the cache is ready");
    let key = list_key(&read, &*pods, (&snapshot, selection, page), false);
    let connection = ClientConnection::next();
    let delivery = Delivery::sharing(read.representation, &lists, &connection);
    let start = || Box::pin(delivery.start_list(Some(&key)));
    let first = start().await;
    assert!(matches!(
        first,
        ListStart::Make {
            making: Some(_),
            ..
        }
    ));
    let (mut second, mut third) = (start(), start());
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());
    // The first request ends early.
    drop(first);
    let Some(ListStart::Make {
        making: Some(making),
        ..
    }) = second.now_or_never()
    else {
        panic!("nothing makes the list");
    };
    assert!((&mut third).now_or_never().is_none());
    making.end(Unshared::Alone);
    let third = third.now_or_never().expect("a turn");
    assert!(matches!(third, ListStart::Make { making: None, .. }));
    // One that can't be made is tried once.
    let ListStart::Make { making, .. } = start().await else {
        panic!("nothing makes the list");
    };
    let mut waiting = start();
    assert!((&mut waiting).now_or_never().is_none());
    making.expect("shared").end(Unshared::Failed);
    let failed = waiting.now_or_never().expect("the end");
    assert!(matches!(failed, ListStart::Failed));
}

#[tokio::test]
async fn only_an_answer_that_holds_the_snapshot_has_its_age() {
    let (_writer, pods) = counted_pods();
    let collection: Arc<dyn Collection> = pods;
    let (lists, connection) = (list_cache(), ClientConnection::next());
    let shutdown = Shutdown::new(shutdown::Config::default());
    let listed = metadata("/api/v1/pods?resourceVersion=0", false);
    let plain = Delivery::plain(listed.representation);
    let sharing = Delivery::sharing(listed.representation, &lists, &connection);
    // The third answer is the second one's text.
    for (delivery, holds_snapshot) in [(&plain, true), (&sharing, false), (&sharing, false)] {
        let answer = read(&listed, &collection, None, delivery, &shutdown).await;
        let answer = answer.expect("a list");
        assert_eq!(answer.snapshot.is_some(), holds_snapshot);
    }
}
