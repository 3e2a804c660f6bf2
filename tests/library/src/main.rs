//! Watches the pods of the current cluster with an informer, and prints each pod and change.

use std::error::Error;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubefan::api::GroupVersionResource;
use kubefan::api::Object;
use kubefan::api::Selection;
use kubefan::api::WireFormat;
use kubefan::cache::WatchFrom;
use kubefan::cache::WatchItem;
use kubefan::informer::Config;
use kubefan::informer::InformerSet;
use kubefan::informer::LiveRestMapper;
use kubefan::shutdown;
use kubefan::shutdown::Shutdown;
use kubefan::upstream::Client;
use kubefan::upstream::ClientConfig;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::connect(ClientConfig::default()).await?;
    let mapper = LiveRestMapper::discover(client.clone()).await?;
    let informers = InformerSet::new(client, Config::default(), shutdown.clone());
    let pods = GroupVersionResource::new("", "v1", "pods");
    let spec = mapper
        .informer_spec(&pods, WireFormat::Json)
        .ok_or("the API server has no pods")?;
    let informer = informers.get_or_start(&spec, None)?;
    let reader = informer.reader();
    if !reader.ready().await {
        return Err("the informer ended".into());
    }
    if let Some(snapshot) = reader.snapshot() {
        println!("{} pods at {}", snapshot.len(), snapshot.resource_version());
    }
    let mut watch = reader.watch(WatchFrom::Snapshot, Arc::new(Selection::default()))?;
    while let Some(item) = watch.next().await {
        match item {
            WatchItem::Initial(object) => println!("initial {}", line(&object)?),
            WatchItem::InitialEnd(version) => println!("all initial pods at {version}"),
            WatchItem::Change { event, verdict } => {
                println!("{verdict:?} {}", line(&event.object)?)
            }
            WatchItem::Expired(expired) => return Err(expired.into()),
        }
    }
    shutdown.drain().await;
    Ok(())
}

fn line(object: &Object) -> Result<String, serde_json::Error> {
    let pod: Pod = serde_json::from_slice(&object.body)?;
    let phase = pod.status.and_then(|status| status.phase);
    Ok(format!(
        "{} {}",
        object.key.as_str(),
        phase.unwrap_or_default()
    ))
}
