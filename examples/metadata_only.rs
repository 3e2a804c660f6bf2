//! Counts the objects of a resource by namespace. It fetches and stores only the objects' metadata.
//!
//! `cargo run --example metadata_only -- [--kubeconfig FILE] RESOURCE`, such as `deployments`,
//! `deploy` or `visitors.ex.io`. Without the flag, the program reads `KUBECONFIG` or
//! `~/.kube/config`. SIGTERM or Ctrl-C ends it with exit code 0.

use std::error::Error;
use std::path::PathBuf;

use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kubefan::shared_informer::{Change, Config, Factory};
use kubefan::shutdown::{Shutdown, Signals};
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};

const USAGE: &str = "usage: metadata_only [--kubeconfig FILE] RESOURCE";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (kubeconfig, name) = arguments()?;
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::connect(ClientConfig {
        kubeconfig,
        ..ClientConfig::default()
    });
    let config = informer::Config::default();
    let factory = Factory::start(client.await?, config, shutdown.clone()).await?;
    let mapper = factory.rest_mapper();
    let gvr = mapper.with(|mapper| mapper.find(&name).map(|found| found.gvr.clone()))?;
    let objects = factory.metadata_informer(&gvr, Config::default())?;
    objects.add_index("namespace", |object: &PartialObjectMeta| {
        object.namespace().into_iter().collect()
    })?;
    let lister = objects.lister();
    let mut changes = objects.changes();
    shutdown.spawn_background(async move {
        while let Some(change) = changes.next().await {
            let namespace = change.object().namespace().unwrap_or_default();
            let keys = lister.index_keys("namespace", &namespace);
            let what = match change {
                Change::Added { .. } => "added",
                Change::Updated { .. } => "updated",
                Change::Deleted(_) => "deleted",
            };
            let name = change.object().name_any();
            let count = keys.map_or(0, |keys| keys.len());
            println!("{what} {namespace}/{name}, {namespace} has {count}");
        }
    });
    // From here on signals end the program in order. Before, they end it at once.
    shutdown.run(Signals::of_process()?).await;
    Ok(())
}

/// Returns the value of the flag `--kubeconfig`, and the resource.
fn arguments() -> Result<(Option<PathBuf>, String), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [resource] => Ok((None, resource.clone())),
        [flag, path, resource] if flag == "--kubeconfig" => {
            Ok((Some(path.into()), resource.clone()))
        }
        _ => Err(USAGE.into()),
    }
}
