//! Creates and updates a ConfigMap `kubefan-example` in each Namespace with the label
//! `kubefan-example=true`. Its data are the namespace's labels, with `/` in keys replaced by `.`. Of
//! several copies, the holder of the Lease `default/kubefan-example` acts. Ctrl-C ends the program.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, PostParams, ResourceExt};
use kubefan::api::ResourceVersion;
use kubefan::controller::{Action, Controller, Request};
use kubefan::leader_election::{self, KubeLease};
use kubefan::manager::Manager;
use kubefan::shared_informer::{Config, Factory, Lister};
use kubefan::shutdown::{self, Shutdown, Signals};
use kubefan::upstream::{Client, ClientConfig};

const NAME: &str = "kubefan-example";
type Failure = Box<dyn std::error::Error + Send + Sync>;

struct State {
    client: kube::Client,
    namespaces: Lister<Namespace>,
    maps: Lister<ConfigMap>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut config = ClientConfig::default();
    kubefan::telemetry::install_log(Default::default())?;
    config.kubeconfig = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => None,
        [flag, file] if flag == "--kubeconfig" => Some(file.into()),
        _ => return Err("usage: namespace_configmap [--kubeconfig FILE]".into()),
    };
    let client = Client::connect(config).await?;
    let shutdown = Shutdown::new(shutdown::Config::default());
    let factory = Factory::start(client.clone(), Default::default(), shutdown.clone()).await?;
    let namespaces = factory.informer::<Namespace>(Config::default())?;
    let maps = factory.informer::<ConfigMap>(Config::default())?;
    let state = Arc::new(State {
        client: client.to_kube(),
        namespaces: namespaces.lister(),
        maps: maps.lister(),
    });
    let to_namespace = |map: &ConfigMap| match &map.metadata.namespace {
        Some(name) if map.metadata.name.as_deref() == Some(NAME) => vec![Request::new(None, name)],
        _ => Vec::new(),
    };
    let controller = Controller::new(NAME, &namespaces, shutdown.clone())
        .watches(&maps, None, to_namespace)
        .max_concurrent_reconciles(4);
    // From here on signals stop the manager. Before, they end the program at once.
    let mut signals = Signals::of_process()?;
    let lease = KubeLease::new(client.to_kube(), "default", NAME);
    let ended = Manager::new(shutdown.clone())
        .with_leader_election(lease, leader_election::Config::default())
        .add(controller, move |request| reconcile(state.clone(), request))
        .run(signals.next())
        .await;
    shutdown.drain().await;
    Ok(ended?)
}

/// Brings the ConfigMap of one namespace into the state that the namespace's labels describe.
async fn reconcile(state: Arc<State>, request: Request) -> Result<Action, Failure> {
    let found = state.maps.get(Some(&request.name), NAME)?;
    let namespace = state.namespaces.get(None, &request.name)?;
    // Nothing can be created in a namespace that is being deleted.
    let Some(namespace) = namespace.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::Done);
    };
    let dotted = |(key, value): (String, String)| (key.replace('/', "."), value);
    let labels = namespace.metadata.labels.clone().unwrap_or_default();
    let data: std::collections::BTreeMap<_, _> = labels.into_iter().map(dotted).collect();
    let wanted = Some(data).filter(|data| data.get(NAME).is_some_and(|value| value == "true"));
    if found.as_ref().map(|it| it.data.clone().unwrap_or_default()) == wanted {
        return Ok(Action::Done);
    }
    let api = Api::<ConfigMap>::namespaced(state.client.clone(), &request.name);
    let Some(data) = wanted else {
        return match api.delete(NAME, &DeleteParams::default()).await {
            // The cache does not show yet that the ConfigMap was deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::Done),
            deleted => deleted.map(|_| Action::Done).map_err(Into::into),
        };
    };
    let mut map = found.as_deref().cloned().unwrap_or_default();
    map.metadata.name = Some(NAME.to_owned());
    map.data = Some(data);
    let written = match found {
        Some(_) => api.replace(NAME, &PostParams::default(), &map).await?,
        None => api.create(&PostParams::default(), &map).await?,
    };
    // The next reconcile must see this write in the cache, or it would write again.
    let version = ResourceVersion(written.resource_version().unwrap_or_default().parse()?);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    state.maps.wait_for(version, deadline).await;
    Ok(Action::Done)
}
