//! A random history, with handlers that are added at any time and read at any speed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubefan_core::api::Selection;
use kubefan_core::cache::EpochCause;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{BROKEN, Thing, Upstream, next, with_app};
use crate::shared_informer::{Change, Changes, Config, SharedInformer, Storage};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const APPS: [&str; 3] = ["x", "y", BROKEN];

/// A handler, and the objects that it has received.
pub(super) struct Follower {
    pub(super) changes: Changes<Thing>,
    pub(super) known: BTreeMap<String, Arc<Thing>>,
}

impl Follower {
    /// Reads the next change, and checks that it fits the objects that the handler has received.
    pub(super) fn read(&mut self) -> bool {
        let Some(change) = next(&mut self.changes) else {
            return false;
        };
        let name = change.object().metadata.name.clone();
        match change {
            Change::Added { object, .. } => {
                let known = self.known.insert(name, Arc::clone(&object));
                assert!(known.is_none(), "{known:?} was added again: {object:?}");
            }
            Change::Updated { old, new } => {
                assert_eq!(old.metadata.uid, new.metadata.uid);
                assert_eq!(self.known.insert(name, new), Some(old));
            }
            Change::Deleted(deleted) => {
                let known = self.known.remove(&name).expect("only known objects");
                assert_eq!(known.metadata.uid, deleted.object.metadata.uid);
            }
        }
        true
    }
}

struct World {
    rng: StdRng,
    upstream: Upstream,
    informers: Vec<(Selection, SharedInformer<Thing>)>,
    followers: Vec<(usize, Follower)>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let retention = [None, Some(1300), Some(2500), Some(6500)];
        let upstream = Upstream::new(retention[rng.random_range(0..retention.len())]);
        let mut informers = Vec::new();
        let of_namespace = Selection {
            namespace: Some("n".to_owned()),
            ..Selection::default()
        };
        for selection in [Selection::default(), of_namespace, with_app("x")] {
            for storage in [Storage::Bytes, Storage::Decoded] {
                let informer = upstream.informer(Config {
                    selection: selection.clone(),
                    storage,
                    on_decode_error: Arc::new(|_| {}),
                    ..Config::default()
                });
                let app = |thing: &Thing| vec![thing.metadata.labels["app"].clone()];
                informer.add_index("app", app).expect("a new index");
                assert!(informer.synced().await);
                informers.push((selection.clone(), informer));
            }
        }
        Self {
            rng,
            upstream,
            informers,
            followers: Vec::new(),
        }
    }

    fn step(&mut self) {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        let app = APPS[self.rng.random_range(0..APPS.len())];
        match self.rng.random_range(0..20) {
            0..7 => self.upstream.put(name, app),
            7..10 => self.upstream.delete(name),
            10 => {
                for _ in 0..self.rng.random_range(0..6) {
                    self.miss();
                }
                if self.rng.random_bool(0.2) {
                    self.upstream.writer.new_epoch(EpochCause::WentBack);
                    self.read_some();
                }
                self.upstream.relist();
            }
            11 => {
                let informer = self.rng.random_range(0..self.informers.len());
                let changes = self.informers[informer].1.changes();
                let known = BTreeMap::new();
                self.followers.push((informer, Follower { changes, known }));
            }
            _ => self.read_some(),
        }
    }

    /// Makes a change that only a list finds.
    fn miss(&mut self) {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        let app = APPS[self.rng.random_range(0..APPS.len())];
        if self.rng.random_bool(0.5) {
            self.upstream.things.remove(name);
        } else {
            self.upstream.change(name, app);
        }
    }

    fn read_some(&mut self) {
        if self.followers.is_empty() {
            return;
        }
        let follower = self.rng.random_range(0..self.followers.len());
        for _ in 0..self.rng.random_range(1..8) {
            if !self.followers[follower].1.read() {
                break;
            }
        }
    }

    /// Returns the objects that an informer must show.
    fn expected(&self, selection: &Selection) -> BTreeMap<String, Arc<Thing>> {
        let things = self.upstream.things.iter();
        let selected = things.filter(|(_, thing)| {
            thing.metadata.labels["app"] != BROKEN && selection.matches(&super::object(thing))
        });
        let entry = |(name, thing): (&String, &Thing)| (name.clone(), Arc::new(thing.clone()));
        selected.map(entry).collect()
    }

    fn check_listers(&self) {
        for (selection, informer) in &self.informers {
            let expected = self.expected(selection);
            let lister = informer.lister();
            assert!(lister.list().iter().eq(expected.values()));
            assert!(lister.list_in("n").iter().eq(expected.values()));
            assert!(lister.list_in("other").is_empty());
            for name in NAMES {
                match lister.get(Some("n"), name) {
                    Ok(found) => assert_eq!(found.as_ref(), expected.get(name)),
                    Err(_) => {
                        assert_eq!(self.upstream.things[name].metadata.labels["app"], BROKEN);
                    }
                }
            }
            for app in APPS {
                let found = lister.by_index("app", app).expect("is an index");
                let has_app = |thing: &&Arc<Thing>| thing.metadata.labels["app"] == app;
                assert!(found.iter().eq(expected.values().filter(has_app)));
                let found = lister.select(&with_app(app));
                assert!(found.iter().eq(expected.values().filter(has_app)));
            }
            let values = lister.index_values("app").expect("is an index");
            let of = |thing: &Arc<Thing>| thing.metadata.labels["app"].clone();
            let expected: BTreeSet<_> = expected.values().map(of).collect();
            assert!(values.iter().eq(&expected));
        }
    }

    fn check_followers(&mut self) {
        for index in 0..self.followers.len() {
            let expected = self.expected(&self.informers[self.followers[index].0].0);
            let follower = &mut self.followers[index].1;
            while follower.read() {}
            assert_eq!(follower.known, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handlers_view_equals_the_cache_after_any_history() {
    for seed in 0..300 {
        let mut world = World::new(seed).await;
        for step in 0..120 {
            world.step();
            if step % 4 == 0 {
                world.check_listers();
            }
        }
        world.check_listers();
        world.check_followers();
    }
}
