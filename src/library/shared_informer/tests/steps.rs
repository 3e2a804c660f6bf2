//! What comes between the steps in which a view loads objects or adds an index, and how it ends.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use serde::Deserialize;
use tokio::task::yield_now;

use super::history::Follower;
use super::{Thing, Upstream, resource};
use crate::shared_informer::view::STEP;
use crate::shared_informer::{Config, IndexError, SharedInformer, Storage};

/// More things than a view loads in three steps.
const THINGS: usize = 3 * STEP + 4;

thread_local! {
    /// How many of [`Counted`] this thread has freed.
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// A decoded object that counts when it is freed.
#[derive(Deserialize)]
struct Counted {}

impl Drop for Counted {
    fn drop(&mut self) {
        FREED.set(FREED.get() + 1);
    }
}

fn name(number: usize) -> String {
    format!("thing-{number:03}")
}

fn apps(thing: &Thing) -> Vec<String> {
    vec![thing.metadata.labels["app"].clone()]
}

fn config() -> Config {
    Config {
        storage: Storage::Decoded,
        ..Config::default()
    }
}

/// Returns a cache of things with the label `app=x`, and an informer that has loaded them. The
/// task of the informer then runs only if the test waits.
async fn loaded(retention_bytes: Option<usize>) -> (Upstream, SharedInformer<Thing>) {
    let mut upstream = Upstream::new(retention_bytes);
    (0..THINGS).for_each(|number| upstream.put(&name(number), "x"));
    let informer = upstream.informer(config());
    assert!(informer.synced().await);
    (upstream, informer)
}

/// Checks the objects and the index `app` of an informer.
fn check(informer: &SharedInformer<Thing>, upstream: &Upstream) {
    let lister = informer.lister();
    let list = lister.list();
    assert!(
        list.iter()
            .map(|thing| &**thing)
            .eq(upstream.things.values())
    );
    for app in ["x", "y", "z"] {
        let found = lister.by_index("app", app).expect("is an index");
        let has_app = |thing: &&Thing| thing.metadata.labels["app"] == app;
        let expected = upstream.things.values().filter(has_app);
        assert!(found.iter().map(|thing| &**thing).eq(expected), "{app}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_between_the_steps_of_a_new_index_are_in_it() {
    let (mut upstream, informer) = loaded(None).await;
    let (lister, view) = (informer.lister(), &informer.0.view);
    view.begin_index("app", Arc::new(apps))
        .expect("a new index");
    let mut steps = 0;
    while !view.step_index("app") {
        // Some of these things are in the index already, and others are not.
        upstream.put(&name(steps), "y");
        upstream.put(&name(THINGS - 1 - steps), "y");
        upstream.put(&format!("new-{steps}"), "z");
        upstream.put(&format!("thing-090-new-{steps}"), "z");
        upstream.delete(&name(20 + steps));
        upstream.delete(&name(80 + steps));
        // Readers make the view apply the changes. They do not read an index that lacks objects.
        assert_eq!(lister.list().len(), upstream.things.len());
        let missing = IndexError::Missing("app".to_owned());
        assert_eq!(lister.index_keys("app", "x"), Err(missing));
        let exists = IndexError::Exists("app".to_owned());
        assert_eq!(view.begin_index("app", Arc::new(apps)), Err(exists));
        steps += 1;
    }
    assert!(steps >= 3, "{steps}");
    check(&informer, &upstream);
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_added_twice_at_once_is_complete_for_both() {
    let (upstream, informer) = loaded(None).await;
    let view = &informer.0.view;
    view.begin_index("app", Arc::new(apps))
        .expect("a new index");
    let exists = IndexError::Exists("app".to_owned());
    assert_eq!(informer.add_index("app", apps), Err(exists));
    check(&informer, &upstream);
}

#[tokio::test(start_paused = true)]
async fn an_index_function_that_panics_leaves_no_index() {
    let (mut upstream, informer) = loaded(None).await;
    let panics = |_: &Thing| -> Vec<String> { panic!("planted") };
    let adding = AssertUnwindSafe(|| informer.add_index("app", panics));
    assert!(catch_unwind(adding).is_err());
    upstream.put("later", "y");
    informer.add_index("app", apps).expect("a new index");
    check(&informer, &upstream);
}

#[tokio::test(start_paused = true)]
async fn a_new_index_is_complete_though_its_view_loses_its_place() {
    let (mut upstream, informer) = loaded(Some(1300)).await;
    let view = &informer.0.view;
    view.begin_index("app", Arc::new(apps))
        .expect("a new index");
    assert!(!view.step_index("app"));
    // The log drops most of these changes.
    (0..THINGS).for_each(|number| upstream.put(&name(number), "y"));
    // The view finds that out, and then takes a snapshot.
    assert!(!view.advance());
    assert!(!view.step_index("app"));
    assert!(!view.advance());
    upstream.put(&name(1), "z");
    while !view.advance() {}
    assert!(view.step_index("app"));
    check(&informer, &upstream);
}

#[tokio::test(start_paused = true)]
async fn a_view_that_lost_its_place_loads_in_steps_while_changes_come() {
    // The log has room for the changes between the steps, but not for those before.
    let (mut upstream, informer) = loaded(Some(40_000)).await;
    informer.add_index("app", apps).expect("a new index");
    let (changes, known) = (informer.changes(), BTreeMap::new());
    let mut follower = Follower { changes, known };
    while follower.read() {}
    assert_eq!(follower.known.len(), THINGS);
    for number in 0..10 * THINGS {
        upstream.put(&name(number % THINGS), "y");
    }
    let view = &informer.0.view;
    let mut steps = 0;
    while !view.advance() {
        if steps < 5 {
            // Some of these things are loaded already, and others are not.
            upstream.put(&name(steps), "z");
            upstream.put(&name(THINGS - 1 - steps), "x");
            upstream.put(&format!("thing-050-new-{steps}"), "z");
            upstream.delete(&name(20 + steps));
            upstream.delete(&name(80 + steps));
        }
        steps += 1;
    }
    assert!(steps >= 5, "{steps}");
    check(&informer, &upstream);
    while follower.read() {}
    let known = follower.known.values().map(|thing| &**thing);
    assert!(known.eq(upstream.things.values()));
}

#[tokio::test(start_paused = true)]
async fn the_task_of_an_ended_informer_does_not_free_its_objects() {
    let (upstream, _) = loaded(None).await;
    let reader = upstream.writer.reader().clone();
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informer = SharedInformer::<Counted>::new(reader, resource(), config(), shutdown);
    assert!(informer.synced().await);
    assert_eq!(informer.lister().list().len(), THINGS);
    let view = Arc::downgrade(&informer.0.view);
    drop(informer);
    // The task is the last user of the view. It runs on this thread.
    while view.strong_count() > 0 {
        yield_now().await;
    }
    assert_eq!(FREED.get(), 0);
}
