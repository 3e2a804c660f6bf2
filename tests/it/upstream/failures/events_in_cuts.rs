//! Groups of Events are deleted while kubefan's watches break at random places, and its clients
//! leave and come back: they miss no change, and see no part of a group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::fold::Fold;
use crate::support::clients::frames::{Event, Format, List, WatchReader};
use crate::support::events::{
    assert_existed, changed, changes_until, collections, create_event, delete_at_once, fill_caches,
    is_of, list, list_in_pages, names, number, watch_from, watch_list,
};
use crate::support::faulty::{FaultyUpstream, RECOVERY, next_change};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::proxies::fault_proxy::{CutPoint, RequestKind};

const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];
const SELECTORS: [&str; 2] = ["", "&fieldSelector=involvedObject.name%3Dx"];
const ROUNDS: usize = 16;
/// The number of Events that are deleted at one version.
const GROUP: usize = 6;
/// Less than the bytes of the frames with the deletions of a group.
const GROUP_BYTES: usize = GROUP * 500;
/// How long kubefan waits for the request that precedes a new watch. Meanwhile, its caches may have
/// a part of a group.
const PAUSE: Duration = Duration::from_millis(20);
const LAST: &str = "last";

/// The states that kubefan has shown in one format, by version.
#[derive(Default)]
struct Shown(Mutex<BTreeMap<u64, List>>);

/// A client that watches for a while, leaves, and comes back, until it has seen the Event [`LAST`].
struct Visitor {
    client: Client,
    path: String,
    format: Format,
    dice: StdRng,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn cuts_lose_no_event_and_tear_no_group() {
    let server = shared();
    let faulty = FaultyUpstream::start(server).await;
    let namespace = faulty.path.split('/').nth(4).expect("a namespace");
    let [path, _] = collections(namespace);
    let through = faulty.kubefan.client();
    fill_caches(&through, namespace).await;
    faulty.proxy.slow_down(PAUSE);
    let from = faulty.direct.list(&path, Format::Json).await;
    let from = number(&from.resource_version);
    let visitor = |format, seed| Visitor {
        client: through.clone(),
        path: path.clone(),
        format,
        dice: StdRng::seed_from_u64(seed),
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let shown = FORMATS.map(|_| Arc::new(Shown::default()));
    let (mut resuming, mut relisting, mut listing) = (Vec::new(), Vec::new(), Vec::new());
    for ((format, shown), seed) in FORMATS.into_iter().zip(&shown).zip(1..) {
        for selector in SELECTORS {
            let direct = watch_from(&faulty.direct, &path, from, selector, format).await;
            let visits = visitor(format, seed).resume(from, selector);
            resuming.push((direct, tokio::spawn(visits)));
        }
        let visits = visitor(format, 10 + seed).list_again(Arc::clone(shown));
        relisting.push(tokio::spawn(visits));
        let lists = visitor(format, 0).list_until(Arc::clone(&is_over), Arc::clone(shown));
        listing.push(tokio::spawn(lists));
    }
    write_and_cut(server, &faulty, namespace).await;
    for (mut direct, visits) in resuming {
        let wanted = changes_until(&mut direct, LAST).await;
        let got = visits.await.expect("the changes");
        assert!(got == wanted, "{got:?} is not {wanted:?}");
    }
    for (format, visits) in FORMATS.into_iter().zip(relisting) {
        let fold = visits.await.expect("the objects");
        assert_eq!(fold.faults, Vec::<String>::new(), "{format:?}");
        let wanted = faulty.direct.list(&path, format).await;
        assert_eq!(fold.compare(&wanted), Ok(()), "{format:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    for lists in join_all(listing).await {
        lists.expect("the lists");
    }
    for (format, shown) in FORMATS.into_iter().zip(&shown) {
        shown.check(&faulty.direct, &path, format).await;
    }
    // After the next change, a list shows the last one.
    create_event(&faulty.direct, namespace, "after", "x").await;
    for format in FORMATS {
        let state = eventually("the last event", RECOVERY, async || {
            let state = list(&through, &path, format).await;
            match names(&state).contains(&LAST) {
                true => Ok(state),
                false => Err("not yet"),
            }
        })
        .await;
        assert_existed(&faulty.direct, &path, &state, format).await;
    }
}

/// Creates and deletes groups. Breaks kubefan's watches of both formats among the deletions of each
/// group, or shortly before. Then creates the Event [`LAST`].
async fn write_and_cut(server: &ApiServer, faulty: &FaultyUpstream, namespace: &str) {
    let [path, _] = collections(namespace);
    let (direct, through) = (&faulty.direct, faulty.kubefan.client());
    let mut dice = StdRng::seed_from_u64(7);
    for round in 0..ROUNDS {
        let group = format!("group-{round}-");
        for at in 0..GROUP {
            let about = ["x", "y"][at % 2];
            create_event(direct, namespace, &format!("{group}{at}"), about).await;
        }
        let change = json!({ "count": 2 });
        let merged = direct.merge(&format!("{path}/{group}0"), &change).await;
        let version = merged.ok().json()["metadata"]["resourceVersion"].take();
        let version = number(version.as_str().expect("a version"));
        // Both watches are open and have delivered a change, so kubefan opens the next ones at
        // once.
        for format in FORMATS {
            eventually("the change", RECOVERY, async || {
                let state = list(&through, &path, format).await;
                match number(&state.resource_version) + 1 >= version {
                    true => Ok(()),
                    false => Err(state.resource_version),
                }
            })
            .await;
        }
        let watches = || faulty.proxy.count(RequestKind::Watch, "/events");
        let before = watches();
        let place = CutPoint::After(dice.random_range(0..GROUP_BYTES));
        faulty.proxy.cut_watches(place);
        let (_, count) = delete_at_once(server, namespace, &group).await;
        assert_eq!(count, GROUP);
        eventually("kubefan watches again", RECOVERY, async || {
            match watches() - before {
                2.. => Ok(()),
                opened => Err(opened),
            }
        })
        .await;
    }
    create_event(direct, namespace, LAST, "x").await;
}

// === impl Shown ===

impl Shown {
    fn add(&self, state: List) {
        let mut states = self.0.lock();
        let version = number(&state.resource_version);
        let first = states.entry(version).or_insert_with(|| state.clone());
        assert!(*first == state, "{first:?} and {state:?} at one version");
    }

    /// Checks that the API server had each of the states at its version.
    async fn check(&self, direct: &Client, path: &str, format: Format) {
        let states = std::mem::take(&mut *self.0.lock());
        assert!(states.len() >= ROUNDS, "{} states", states.len());
        for state in states.values() {
            assert_existed(direct, path, state, format).await;
        }
    }
}

// === impl Visitor ===

impl Visitor {
    /// Returns the changes of all visits. Each visit begins at the newest version that the client
    /// has certainly seen all changes of. After a deletion, more of its version may come, so the
    /// next visit gets all of them again.
    async fn resume(mut self, from: u64, selector: &'static str) -> Vec<Event> {
        let mut changes: Vec<Event> = Vec::new();
        let mut complete = from;
        loop {
            changes.retain(|change| number(&changed(change).resource_version) <= complete);
            let (client, path) = (&self.client, &self.path);
            let mut stream = watch_from(client, path, complete, selector, self.format).await;
            for _ in 0..self.dice.random_range(1..3 * GROUP) {
                let event = next_change(&mut stream).await;
                let version = number(&changed(&event).resource_version);
                complete = match event {
                    Event::Deleted(_) => version - 1,
                    _ => version,
                };
                let is_last = is_of(&event, LAST);
                changes.push(event);
                if is_last {
                    return changes;
                }
            }
        }
    }

    /// Reads the state at the begin of each visit, in one way after the other. No change after it
    /// may have its version. Returns the objects at the end.
    async fn list_again(mut self, shown: Arc<Shown>) -> Fold {
        let mut visits = 0;
        loop {
            let (state, mut stream) = self.state(visits).await;
            visits += 1;
            let version = number(&state.resource_version);
            let mut fold = Fold::of(&state);
            let has_last = names(&state).contains(&LAST);
            shown.add(state);
            if has_last {
                return fold;
            }
            for _ in 0..self.dice.random_range(1..3 * GROUP) {
                let event = next_change(&mut stream).await;
                let is_later = number(&changed(&event).resource_version) > version;
                assert!(is_later, "{event:?} after the state at {version}");
                let is_last = is_of(&event, LAST);
                fold.apply(event);
                if is_last {
                    return fold;
                }
            }
            assert_eq!(fold.faults, Vec::<String>::new());
        }
    }

    /// Returns a state at version 0, and a stream of the changes after it.
    async fn state(&self, visits: usize) -> (List, WatchReader) {
        let (client, path, format) = (&self.client, &self.path, self.format);
        let state = match visits % 3 {
            0 => list(client, path, format).await,
            1 => list_in_pages(client, path, format).await,
            _ => return watch_list(client, path, format).await,
        };
        let version = number(&state.resource_version);
        let stream = watch_from(client, path, version, "", format).await;
        (state, stream)
    }

    /// Lists again and again until the test is over.
    async fn list_until(self, is_over: Arc<AtomicBool>, shown: Arc<Shown>) {
        while !is_over.load(Ordering::Relaxed) {
            shown.add(list(&self.client, &self.path, self.format).await);
        }
    }
}
