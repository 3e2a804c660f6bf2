//! Helpers for the tests: a workload of a given size, and a store that applies operations.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::workload::{Config, ObjectPath, Operation, Workload};

/// The time between two operations of [`churn`].
const STEP: Duration = Duration::from_millis(50);

pub(super) fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

pub(super) fn workload(nodes: usize, pods: usize, seed: u64) -> Workload {
    Workload::new(Config {
        nodes,
        pods,
        seed,
        now: start(),
    })
}

/// Returns the next operations, at a rate of 20 per second.
pub(super) fn churn(workload: &mut Workload) -> impl Iterator<Item = Operation> {
    (1..).map(|i| workload.churn(start() + STEP * i))
}

/// The objects that exist after the operations so far, by path.
#[derive(Default)]
pub(super) struct Store(pub(super) BTreeMap<ObjectPath, Value>);

impl Store {
    pub(super) fn initial(workload: &mut Workload) -> Self {
        let mut store = Self::default();
        workload
            .initial()
            .for_each(|operation| store.fold(operation));
        store
    }

    /// Applies an operation. Panics if an API server would refuse it, or if it is an update that
    /// changes nothing or the wrong part.
    pub(super) fn fold(&mut self, operation: Operation) {
        let target = operation.target().clone();
        let before = self.0.get(&target);
        match operation {
            Operation::Create { object, .. } => {
                assert!(before.is_none(), "created twice: {target:?}");
                check_place(&target, &object);
                self.0.insert(target, object);
            }
            Operation::Update {
                object,
                subresource,
                ..
            } => {
                let before = before.unwrap_or_else(|| panic!("absent: {target:?}"));
                check_place(&target, &object);
                check_update(&target, before, &object, subresource);
                self.0.insert(target, object);
            }
            Operation::Delete { .. } => {
                assert!(before.is_some(), "deleted though absent: {target:?}");
                self.0.remove(&target);
            }
        }
    }

    pub(super) fn of(&self, resource: &str) -> impl Iterator<Item = &Value> {
        let is_wanted = move |(target, _): &(&ObjectPath, &Value)| target.resource == resource;
        self.0.iter().filter(is_wanted).map(|(_, object)| object)
    }
}

fn check_place(target: &ObjectPath, object: &Value) {
    let ObjectPath { group, version, .. } = target;
    let api_version = match *group {
        "" => (*version).to_owned(),
        group => format!("{group}/{version}"),
    };
    assert_eq!(object["apiVersion"], api_version);
    assert_eq!(object["metadata"]["name"], target.name);
    let namespace = object["metadata"].get("namespace").and_then(Value::as_str);
    assert_eq!(namespace, target.namespace.as_deref());
}

/// Asserts that an update changes something, and only in the part that `subresource` names.
fn check_update(target: &ObjectPath, before: &Value, after: &Value, subresource: Option<&str>) {
    let without_managers = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        object
    };
    let (mut before, mut after) = (without_managers(before), without_managers(after));
    assert_ne!(before, after, "nothing changed: {target:?} {subresource:?}");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    let status_before = before.as_object_mut().unwrap().remove("status");
    let status_after = after.as_object_mut().unwrap().remove("status");
    match subresource {
        Some("status") => assert_eq!(before, after, "{target:?}"),
        None => assert_eq!(status_before, status_after, "{target:?}"),
        Some(other) => panic!("no such subresource: {other}"),
    }
}
