//! Support code of the LIST benches: a runtime and realistic pods.

use std::time::SystemTime;

use kubefan_tools::workload;
use kubefan_tools::workload::{Operation, Workload};
use serde_json::Value;

/// The average size of a pod in a real cluster, in bytes of JSON.
const POD_BYTES: usize = 6_800;

/// Returns a current-thread runtime, like those of kubefan's serving threads.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

/// Returns `count` pods in JSON of about 6.8 KiB each.
pub(crate) fn pods(count: usize) -> Vec<String> {
    let mut workload = Workload::new(workload::Config {
        nodes: count.div_ceil(30),
        pods: count,
        seed: 1,
        now: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000),
    });
    let pods = workload.initial().filter_map(|operation| match operation {
        Operation::Create { target, object } if target.resource == "pods" => Some(object),
        _ => None,
    });
    pods.take(count)
        .enumerate()
        .map(|(number, pod)| text(number, pod))
        .collect()
}

/// Returns the JSON of a pod with about `POD_BYTES` bytes: without some managed fields if it is too
/// long, and padded if it is too short.
fn text(number: usize, mut pod: Value) -> String {
    pod["metadata"]["resourceVersion"] = (number + 1).to_string().into();
    pod["metadata"]["labels"]["shard"] = (number % 100).to_string().into();
    while pod.to_string().len() > POD_BYTES
        && pod["metadata"]["managedFields"]
            .as_array_mut()
            .is_some_and(|fields| fields.pop().is_some())
    {}
    let padding = POD_BYTES.saturating_sub(pod.to_string().len());
    pod["metadata"]["annotations"]["example.com/notes"] = note(number, padding).into();
    // An API server sends `kind` and `apiVersion` first.
    if let Some(pod) = pod.as_object_mut() {
        pod.shift_remove("kind");
        pod.shift_remove("apiVersion");
    }
    format!(
        "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",{}",
        &pod.to_string()[1..]
    )
}

/// Returns a text that compresses about as well as the rest of a pod.
fn note(number: usize, length: usize) -> String {
    let mut note = String::new();
    while note.len() < length {
        note += &format!("f:container-{}-{} ", note.len(), number * 7919 % 10_007);
    }
    note.truncate(length);
    note
}
