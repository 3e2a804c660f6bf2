//! Random histories: each object is reconciled after its last change, and never twice at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubefan_core::api::ObjectKey;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

use super::support::{Fake, controller, map, ms};
use crate::controller::{Action, Reconciler, Request};
use crate::shared_informer::Lister;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// Adds or changes an object.
    Put(usize),
    Delete(usize),
    Sleep(u64),
    BreakWatch,
    Expire,
}

/// A reconcile ends after some milliseconds in one of these ways.
#[derive(Clone, Copy, Debug)]
enum End {
    Done,
    Requeue,
    RequeueAfter,
    Error,
    Panic,
}

/// Records the last state of each object that a successful reconcile saw.
struct Recorder {
    lister: Lister<ConfigMap>,
    ends: Mutex<Vec<(u64, End)>>,
    running: Mutex<BTreeSet<Request>>,
    seen: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    overlaps: Arc<Mutex<Vec<Request>>>,
}

/// Removes a request from the running requests when it is dropped, also after a panic.
struct Running<'a>(&'a Recorder, Request);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
    }
}

impl Reconciler for Recorder {
    type Error = &'static str;

    async fn reconcile(&self, request: Request) -> Result<Action, &'static str> {
        if !self.running.lock().insert(request.clone()) {
            self.overlaps.lock().push(request.clone());
        }
        let running = Running(self, request);
        let request = &running.1;
        let (took, end) = self.ends.lock().pop().unwrap_or((0, End::Done));
        let found = self.lister.get(request.namespace.as_deref(), &request.name);
        let found = found.map_err(|_| "not a config map")?;
        tokio::time::sleep(ms(took)).await;
        match end {
            End::Error => return Err("a scripted error"),
            End::Panic => panic!("a scripted panic"),
            End::Done | End::Requeue | End::RequeueAfter => {}
        }
        let version = found.and_then(|map| map.metadata.resource_version.clone());
        self.seen.lock().insert(request.name.clone(), version);
        Ok(match end {
            End::Requeue => Action::Requeue,
            End::RequeueAfter => Action::RequeueAfter(ms(3)),
            _ => Action::Done,
        })
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..NAMES.len()).prop_map(Step::Put),
        2 => (0..NAMES.len()).prop_map(Step::Delete),
        4 => (0..30_u64).prop_map(Step::Sleep),
        1 => Just(Step::BreakWatch),
        1 => Just(Step::Expire),
    ]
}

fn end() -> impl Strategy<Value = (u64, End)> {
    let ends = prop_oneof![
        4 => Just(End::Done),
        1 => Just(End::Requeue),
        1 => Just(End::RequeueAfter),
        2 => Just(End::Error),
        1 => Just(End::Panic),
    ];
    (0..20_u64, ends)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn each_object_is_reconciled_after_its_last_change(
        steps in prop::collection::vec(step(), 1..60),
        ends in prop::collection::vec(end(), 0..40),
        workers in 1..4_usize,
    ) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(run(&steps, ends, workers));
    }
}

async fn run(steps: &[Step], ends: Vec<(u64, End)>, workers: usize) {
    let maps = Fake::<ConfigMap>::new();
    let (seen, overlaps) = (Arc::default(), Arc::default());
    let recorder = Recorder {
        lister: maps.informer.lister(),
        ends: Mutex::new(ends),
        running: Mutex::default(),
        seen: Arc::clone(&seen),
        overlaps: Arc::clone(&overlaps),
    };
    let controller = controller(&maps).max_concurrent_reconciles(workers);
    let run = tokio::spawn(controller.run(recorder, std::future::pending()));
    // The last state of each object that the controller can have received. The first list does not
    // have the objects that were deleted before it.
    let mut last = BTreeMap::new();
    maps.informer.synced().await;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Put(name) => {
                let mut object = map(NAMES[name], 1);
                object["data"] = json!({ "step": number.to_string() });
                let source = &maps.source;
                let version = source.add(&object).or_else(|_| source.modify(&object));
                let version = version.expect("one of both").0.to_string();
                last.insert(NAMES[name].to_owned(), Some(version));
            }
            Step::Delete(name) => {
                let key = ObjectKey::new(Some("n"), NAMES[name]);
                if maps.source.delete(&key).is_ok() {
                    last.insert(NAMES[name].to_owned(), None);
                }
            }
            Step::Sleep(time) => tokio::time::sleep(ms(time)).await,
            Step::BreakWatch => maps.source.break_watches(),
            Step::Expire => maps.source.expire(),
        }
    }
    // Longer than any backoff of forty failures of four objects, and longer than the
    // backoff of the watch.
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert!(overlaps.lock().is_empty(), "{overlaps:?} ran twice at once");
    let seen = seen.lock().clone();
    for (name, version) in &last {
        // The controller never received an object that came and went while no watch was open.
        let found = seen.get(name).cloned().unwrap_or_default();
        assert_eq!(&found, version, "{name} after {steps:?}");
    }
    run.abort();
}
