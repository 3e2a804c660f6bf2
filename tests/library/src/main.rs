//! Prints the pods of the current cluster and their changes, with a shared informer and a controller.

use std::convert::Infallible;
use std::error::Error;

use k8s_openapi::api::core::v1::Pod;
use kubefan::controller::Action;
use kubefan::controller::Controller;
use kubefan::controller::Request;
use kubefan::informer;
use kubefan::shared_informer::Config;
use kubefan::shared_informer::Factory;
use kubefan::shared_informer::HandlerFunctions;
use kubefan::shutdown;
use kubefan::shutdown::Shutdown;
use kubefan::upstream::Client;
use kubefan::upstream::ClientConfig;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::connect(ClientConfig::default()).await?;
    let factory = Factory::start(client, informer::Config::default(), shutdown.clone()).await?;
    let pods = factory.informer::<Pod>(Config::default())?;
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
    let reconcile = |pod: Request| async move {
        println!("reconciled {pod}");
        Ok::<_, Infallible>(Action::Done)
    };
    let controller = Controller::new("pods", &pods, shutdown.clone());
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    controller.run(reconcile, stop).await?;
    shutdown.drain().await;
    Ok(())
}

fn line(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    format!("{namespace}/{name} {}", phase.unwrap_or_default())
}
