//! Pods as clusters have them, for measurements: a name of our own, all else as the workload says.

use std::time::SystemTime;

use futures::StreamExt;
use futures::stream;
use kubefan::internals::tools::workload::Config;
use kubefan::internals::tools::workload::Operation;
use kubefan::internals::tools::workload::Workload;
use serde_json::Value;

use crate::support::clients::client::Client;

/// So many are written at a time.
const WRITERS: usize = 16;
/// What the API server works out itself, and refuses from others.
const SPEC_OF_ADMISSION: [&str; 3] = ["priority", "priorityClassName", "preemptionPolicy"];
const METADATA_OF_SERVER: [&str; 4] = ["uid", "namespace", "generateName", "managedFields"];

/// Creates `pod-0`, `pod-1` and so on in a collection, with their status.
///
/// # Panics
/// When the API server refuses one.
pub(crate) async fn create(client: &Client, path: &str, count: usize) {
    let created = pods(count).map(|pod| async move {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        client.create(path, &pod).await.ok();
        client
            .replace(&format!("{path}/{name}/status"), &pod)
            .await
            .ok();
    });
    stream::iter(created)
        .buffer_unordered(WRITERS)
        .collect::<()>()
        .await;
}

fn pods(count: usize) -> impl Iterator<Item = Value> {
    let config = Config {
        nodes: count.div_ceil(50),
        // Some of what is rendered belongs to jobs that come and go.
        pods: count + 100,
        seed: 1,
        now: SystemTime::now(),
    };
    let operations: Vec<Operation> = Workload::new(config).initial().collect();
    let pods = operations
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Create { target, object } if target.resource == "pods" => Some(object),
            _ => None,
        });
    pods.take(count).enumerate().map(|(number, mut pod)| {
        for field in SPEC_OF_ADMISSION {
            remove(&mut pod["spec"], field);
        }
        for field in METADATA_OF_SERVER {
            remove(&mut pod["metadata"], field);
        }
        pod["metadata"]["name"] = format!("pod-{number}").into();
        pod
    })
}

fn remove(object: &mut Value, field: &str) {
    if let Some(object) = object.as_object_mut() {
        object.shift_remove(field);
    }
}
