//! A simulated API server in this process, for the tests of programs.
//!
//! An [`ApiServer`] serves discovery, the usual built-in kinds and custom resources from a store in
//! memory: GET, LIST, WATCH, create, update, patch, delete, subresources, dry runs and finalizers.
//! It has no controllers, no schemas, no admission, no server-side apply and no users: every client
//! may do everything. It serves only JSON. controller-runtime's counterpart is `envtest`, which
//! starts a real API server.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kubefan::informer;
//! use kubefan::shared_informer::{Config, Factory};
//! use kubefan::shutdown::{self, Shutdown};
//! use kubefan_tools::simulator::ApiServer;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start().await?;
//! let mut map = ConfigMap::default();
//! map.metadata.namespace = Some("default".to_owned());
//! map.metadata.name = Some("settings".to_owned());
//! server.put(&map)?;
//!
//! // The program under test.
//! let shutdown = Shutdown::new(shutdown::Config::default());
//! let config = informer::Config::default();
//! let factory = Factory::start(server.kube_client(), config, shutdown.clone()).await?;
//! let maps = factory.informer::<ConfigMap>(Config::default())?;
//! assert!(maps.synced().await);
//! assert_eq!(maps.lister().list().len(), 1);
//!
//! shutdown.drain().await;
//! server.shut_down().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(run()).unwrap();
//! ```
//!
//! # Clients
//!
//! - [`ApiServer::kube_client`] calls the server without a socket. So it works in a test with
//!   paused time, where waits cost no time.
//! - Programs connect to [`ApiServer::url`], or read [`ApiServer::kubeconfig`].
//!
//! # Faults
//!
//! [`ApiServer::faults`] makes requests fail and breaks watches. [`ApiServer::compact`] and
//! [`ApiServer::restore_backup`] do to the history what an administrator of etcd may do.
//!
//! # Kubernetes versions
//!
//! This crate selects the feature `v1_36` of `k8s-openapi`. A build can have only one such feature.
//! A program with another version's feature uses `kubefan::fake_source`, or runs `kubefan sim`
//! beside its tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::{fmt, io};

use http::Request;
use kube::Resource;
use kubefan_core::api::{GroupVersionResource, ResourceVersion, Status};
use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_proxy::net::Listener;
use kubefan_proxy::server::{RequestMetrics, WebPageRules};
use kubefan_proxy::{net, server};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tower::service_fn;

use crate::sim::Simulator;
pub use crate::sim::{Error as DefinitionError, FaultInjector, RequestFault, WatchFault};

#[cfg(test)]
mod tests;

/// A running simulated API server. It ends at [`ApiServer::shut_down`], or with the runtime.
///
/// The writing methods are for the test itself: they send no request, and skip rules that apply
/// only to clients.
pub struct ApiServer {
    simulator: Simulator,
    address: SocketAddr,
    shutdown: Shutdown,
}

impl ApiServer {
    /// Starts a server with the namespaces of a new cluster, on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If the port cannot be opened.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn start() -> io::Result<Self> {
        let shutdown = Shutdown::new(shutdown::Config::default());
        let simulator = Simulator::new(shutdown.clone());
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let registry = Registry::new();
        let (config, metrics) = (net::Config::default(), net::Metrics::new(&registry));
        let listener = Listener::new("simulator", socket, config, metrics, shutdown.clone());
        let address = listener.local_address()?;
        let answering = simulator.clone();
        let service = server::with_filters(
            RequestMetrics::new(&registry),
            WebPageRules::default(),
            move |request| answering.clone().answer(request),
        );
        shutdown.spawn(listener.serve(service));
        Ok(Self {
            simulator,
            address,
            shutdown,
        })
    }

    /// Returns the URL for clients, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the text of a kubeconfig with [`ApiServer::url`], for
    /// programs that read such a file.
    pub fn kubeconfig(&self) -> String {
        let url = self.url();
        format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: simulator, cluster: {{server: '{url}'}}}}]
users: [{{name: simulator, user: {{}}}}]
contexts: [{{name: simulator, context: {{cluster: simulator, user: simulator}}}}]
current-context: simulator
"
        )
    }

    /// Returns a client of this server that needs no socket. It is also a
    /// [`Client`](kubefan_core::upstream::Client): `Client::from(server.kube_client())`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn kube_client(&self) -> kube::Client {
        let simulator = self.simulator.clone();
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let answer = simulator.clone().answer(request.map(server::boxed));
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        kube::Client::new(service, "default")
    }

    /// Creates the CustomResourceDefinitions in a YAML text, which may contain several documents.
    /// Documents of other kinds are ignored.
    ///
    /// # Errors
    ///
    /// If the text is not valid YAML, or a definition is refused.
    pub fn define(&self, yaml: &str) -> Result<(), DefinitionError> {
        self.simulator.define(yaml)
    }

    /// Creates `object`, or replaces it together with its status, and returns what is stored.
    ///
    /// # Errors
    ///
    /// 400, 404, 409 or 422, as from the API server: for example 409 if `object` has a resource
    /// version that is not the current one.
    pub fn put<K>(&self, object: &K) -> Result<K, Status>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let json = serde_json::to_value(object).map_err(invalid)?;
        let (gvr, namespace) = (resource_of::<K>(), object.meta().namespace.as_deref());
        let stored = match self.simulator.update(&gvr, namespace, json.clone()) {
            Err(status) if status.code == 404 => self.simulator.create(&gvr, namespace, json),
            updated => updated,
        };
        serde_json::from_value(stored?).map_err(invalid)
    }

    /// Returns the object `name` in `namespace` (`None` for a cluster-scoped resource).
    ///
    /// # Errors
    ///
    /// 404 if there is none.
    pub fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<K, Status>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let found = self.simulator.get(&resource_of::<K>(), namespace, name)?;
        serde_json::from_value(found).map_err(invalid)
    }

    /// Deletes the object `name` in `namespace` (`None` for a cluster-scoped resource). If it has
    /// finalizers, it is only marked for deletion.
    ///
    /// # Errors
    ///
    /// 404 if there is none.
    pub fn delete<K>(&self, namespace: Option<&str>, name: &str) -> Result<(), Status>
    where
        K: Resource<DynamicType = ()>,
    {
        self.simulator.delete(&resource_of::<K>(), namespace, name)
    }

    /// Returns the injector that makes requests fail and breaks watches.
    pub fn faults(&self) -> &FaultInjector {
        self.simulator.faults()
    }

    /// Drops all history, so that watches and lists at an older version get 410. Returns the oldest
    /// version that watches can still start at.
    pub fn compact(&self) -> ResourceVersion {
        self.simulator.compact()
    }

    /// Does what restoring an old backup does: sets the resource version to half its value, ends
    /// all watches, and returns the new version. The objects stay.
    pub fn restore_backup(&self) -> ResourceVersion {
        self.simulator.restore_backup()
    }

    /// Ends all watches and closes the port. Waits for the clients that are connected, up to 25 s.
    pub async fn shut_down(self) {
        self.shutdown.drain().await;
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

fn resource_of<K: Resource<DynamicType = ()>>() -> GroupVersionResource {
    GroupVersionResource::new(K::group(&()), K::version(&()), K::plural(&()))
}

/// Creates the answer to an object that is not valid for its type.
fn invalid(error: serde_json::Error) -> Status {
    Status::failure(400, "BadRequest", error.to_string())
}
