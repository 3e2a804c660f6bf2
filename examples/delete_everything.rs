//! Deletes each object as soon as it exists: the classic controller on a fake source.
//!
//! `cargo run --example delete_everything`; it needs no API server and no kubeconfig.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;

use kubefan::api::Object;
use kubefan::delta_fifo::{Config, Controller, Delta, Deltas, ObjectFifo};
use kubefan::fake_source::FakeSource;
use serde_json::json;
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for name in run().await? {
        println!("{name} was deleted");
    }
    Ok(())
}

/// Adds three objects, runs the controller until it has deleted them, and returns their names.
pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    // The source takes the place of a `ResourceClient`, which lists and watches an API server.
    let source = FakeSource::new();
    source.add(&pod("a-hello"))?;
    source.add(&pod("b-controller"))?;

    let queue = Arc::new(ObjectFifo::of_objects());
    let (report, mut reports) = mpsc::unbounded_channel();
    let process = {
        let source = source.clone();
        move |deltas: &Deltas<Arc<Object>>, is_in_initial_list: bool| {
            // All changes of one object since it was last processed. This program needs
            // only the newest one.
            match deltas.newest() {
                Delta::Deleted(object) | Delta::DeletedFinalStateUnknown(object) => {
                    report.send(object.key.name().to_owned())?;
                }
                delta => {
                    let key = &delta.object().key;
                    println!("{key} exists (in the first list: {is_in_initial_list})");
                    source.delete(key)?;
                }
            }
            Ok::<(), Box<dyn Error + Send + Sync>>(())
        }
    };

    // A failed deletion is tried again, after a wait that grows with each failure.
    let config = Config {
        retry_on_error: true,
        ..Config::default()
    };
    let controller = Controller::new(source.clone(), Arc::clone(&queue), process, config);
    let script = async {
        queue.synced().await;
        source.add(&pod("c-framework"))?;
        let mut deleted = Vec::new();
        while deleted.len() < 3 {
            deleted.extend(reports.recv().await);
        }
        Ok(deleted)
    };
    // The script ends before the controller does, and its end drops the controller.
    tokio::select! {
        end = controller.run(pending()) => Err(end.into()),
        deleted = script => deleted,
    }
}

fn pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name},
    })
}
