//! Prints the pods of the current cluster and their changes, with a shared informer.

use std::error::Error;

use k8s_openapi::api::core::v1::Pod;
use kubefan::api::GroupVersionResource;
use kubefan::api::WireFormat;
use kubefan::informer::Config;
use kubefan::informer::InformerSet;
use kubefan::informer::LiveRestMapper;
use kubefan::shared_informer;
use kubefan::shared_informer::HandlerFunctions;
use kubefan::shared_informer::SharedInformer;
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
    let pods = SharedInformer::<Pod>::new(
        informer.reader().clone(),
        spec.resource,
        shared_informer::Config::default(),
        shutdown.clone(),
    );
    let node = |pod: &Pod| {
        pod.spec
            .iter()
            .flat_map(|spec| spec.node_name.clone())
            .collect()
    };
    pods.add_index("node", node)?;
    let handler = HandlerFunctions::<Pod>::new()
        .on_add(|pod, _is_initial_list| println!("added {}", line(&pod)))
        .on_update(|_old, new| println!("updated {}", line(&new)))
        .on_delete(|deleted| println!("deleted {}", line(&deleted.object)));
    let mut handler = pods.add_handler(handler, None);
    if !handler.synced().await {
        return Err("the informer ended".into());
    }
    let lister = pods.lister();
    for node in lister.index_values("node")? {
        println!("{} pods on {node}", lister.index_keys("node", &node)?.len());
    }
    tokio::signal::ctrl_c().await?;
    shutdown.drain().await;
    Ok(())
}

fn line(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    format!("{namespace}/{name} {}", phase.unwrap_or_default())
}
