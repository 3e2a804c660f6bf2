//! Prints the pods of a cluster and their changes: handlers, an index and a lister on one informer.
//!
//! `cargo run --example pod_watcher -- --kubeconfig FILE`; without the flag, the program reads
//! `KUBECONFIG` or `~/.kube/config`. SIGTERM or Ctrl-C ends it with exit code 0.

use std::error::Error;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kubefan::shared_informer::{Config, Factory, Filtering, HandlerFunctions};
use kubefan::shutdown::{Shutdown, Signals};
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::connect(ClientConfig {
        kubeconfig: kubeconfig()?,
        ..ClientConfig::default()
    });
    let config = informer::Config {
        // The removed part is a third of an object, and most programs do not read it.
        hooks: informer::Hooks::default().with_transform(|_, object| {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
        }),
        ..informer::Config::default()
    };
    let factory = Factory::start(client.await?, config, shutdown.clone()).await?;
    let pods = factory.informer::<Pod>(Config::default())?;
    pods.add_index("node", |pod: &Pod| node(pod).into_iter().collect())?;

    let lister = pods.lister();
    let all = HandlerFunctions::<Pod>::new()
        .on_add(|pod, _is_initial_list| println!("added {}", line(&pod)))
        .on_update(|_old, new| println!("updated {}", line(&new)))
        .on_delete(|deleted| println!("deleted {}", line(&deleted.object)));
    // A second handler costs no second watch.
    let scheduled = HandlerFunctions::<Pod>::new().on_add(move |pod, _is_initial_list| {
        let node = node(&pod).unwrap_or_default();
        let pods = lister.index_keys("node", &node).unwrap_or_default();
        println!("{} pods are on {node}", pods.len());
    });
    let scheduled = Filtering::new(|pod: &Pod| node(pod).is_some(), scheduled);
    let mut registered = pods.add_handler(all, None);
    pods.add_handler(scheduled, None);
    if registered.synced().await {
        println!("synced with {} pods", pods.lister().list().len());
    }
    // From here on signals end the program in order. Before, they end it at once.
    shutdown.run(Signals::of_process()?).await;
    Ok(())
}

/// Returns the value of the flag `--kubeconfig`.
fn kubeconfig() -> Result<Option<PathBuf>, Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => Ok(None),
        [flag, path] if flag == "--kubeconfig" => Ok(Some(path.into())),
        _ => Err("usage: pod_watcher [--kubeconfig FILE]".into()),
    }
}

fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn line(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let (phase, name) = (phase.unwrap_or_default(), pod.name_any());
    let namespace = pod.namespace().unwrap_or_default();
    format!("{namespace}/{name} {phase}")
}
