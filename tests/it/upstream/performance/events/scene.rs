//! An API server with many Events and as many ConfigMaps of a like size, and the programs that read
//! them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::pods;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, metric, private_with};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process;
use crate::support::settings::setting as environment;

/// Flags of the API server. The Events must not expire during a measurement.
const FLAGS: [&str; 3] = [
    "--allow-privileged=true",
    "--request-timeout=15m",
    "--event-ttl=24h",
];
/// The number of pods that the Events are about. Only `pod-0` exists.
pub(super) const PODS: usize = 1_000;
/// The number of namespaces that the pods are in. [`PODS`] is a multiple of it.
const NAMESPACES: usize = 10;
/// The most objects that are created concurrently.
const WRITERS: usize = 64;
const FILL: Duration = Duration::from_secs(300);

/// What is cached.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Events,
    ConfigMaps,
}

pub(super) const KINDS: [Kind; 2] = [Kind::Events, Kind::ConfigMaps];

pub(super) struct Scene {
    pub(super) server: ApiServer,
    pub(super) direct: Client,
    /// The number of objects of each kind in `namespaces`.
    pub(super) objects: usize,
    /// The namespaces of the pods, in turn.
    pub(super) namespaces: Vec<String>,
    /// The namespace of the objects that [`Scene::write`] creates.
    pub(super) fresh: String,
    /// The uid of `pod-0`.
    uid: String,
    /// The length of the text in a ConfigMap that makes it as long as an Event.
    text: usize,
    /// The number of the next object that [`Scene::write`] creates.
    next: AtomicUsize,
}

// === impl Kind ===

impl Kind {
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::ConfigMaps => "configmaps",
        }
    }

    /// Returns the parameter that selects the objects of a pod. ConfigMaps have no field for it,
    /// but a label.
    pub(super) fn of_pod(self, pod: usize) -> String {
        match self {
            Self::Events => format!("fieldSelector=involvedObject.name%3Dpod-{pod}"),
            Self::ConfigMaps => format!("labelSelector=pod%3Dpod-{pod}"),
        }
    }

    /// Returns a version that a watch can start from, without reading the objects.
    ///
    /// # Errors
    /// The server does not answer, for example while kubefan's cache fills.
    pub(super) async fn version(self, client: &Client) -> Result<String, String> {
        let resource = self.resource();
        let none =
            format!("/api/v1/{resource}?resourceVersion=0&fieldSelector=metadata.namespace%3D0");
        let list = client.get(&none).await.is(200)?.json();
        let version = list["metadata"]["resourceVersion"].as_str();
        Ok(version.expect("a version").to_owned())
    }
}

// === impl Scene ===

impl Scene {
    /// Starts the API server, without Events and ConfigMaps.
    pub(super) async fn start() -> Self {
        let server = private_with(&FLAGS).await;
        let direct = server.client();
        let mut namespaces = Vec::new();
        for _ in 0..NAMESPACES {
            namespaces.push(server.namespace("events").await);
        }
        let path = format!("/api/v1/namespaces/{}/pods", namespaces[0]);
        pods::create(&direct, &path, 1).await;
        let uid = server.read(&format!("{path}/pod-0"), "/metadata/uid").await;
        let objects = environment("KUBEFAN_EVENTS", 100_000);
        let mut scene = Self {
            fresh: server.namespace("fresh").await,
            direct,
            server,
            objects,
            namespaces,
            uid: uid.as_str().expect("a uid").to_owned(),
            text: 0,
            next: AtomicUsize::new(objects),
        };
        scene.text = scene.text_length().await;
        scene
    }

    /// Creates an Event and a ConfigMap without text, and returns the difference of their lengths.
    async fn text_length(&self) -> usize {
        let mut lengths = [0; 2];
        for (length, kind) in lengths.iter_mut().zip(KINDS) {
            self.create(kind, 0, &self.fresh).await;
            let (namespace, resource) = (&self.fresh, kind.resource());
            let path = format!("/api/v1/namespaces/{namespace}/{resource}/{}", name(0));
            *length = self.direct.get(&path).await.ok().body.len();
        }
        lengths[0] - lengths[1]
    }

    /// Creates all objects of a kind, as fast as possible.
    pub(super) async fn create_all(&self, kind: Kind) {
        let began = Instant::now();
        let created = (0..self.objects).map(|number| {
            let namespace = &self.namespaces[number % NAMESPACES];
            self.create(kind, number, namespace)
        });
        let created = stream::iter(created).buffer_unordered(WRITERS);
        created.collect::<()>().await;
        println!(
            "{} {} were created in {:.0} s",
            self.objects,
            kind.resource(),
            began.elapsed().as_secs_f64()
        );
    }

    /// Creates about `rate` objects per second for `time`, and returns their numbers. They come at
    /// random moments, like those of independent components. If the API server is too slow, fewer
    /// are created, and the last ones within twice the time.
    pub(super) async fn write(&self, kind: Kind, rate: f64, time: Duration) -> Range<usize> {
        let (first, began) = (self.next.load(Ordering::Relaxed), Instant::now());
        let mut at = 0.0;
        let moments = std::iter::from_fn(|| {
            at -= (1.0 - rand::random::<f64>()).ln() / rate;
            (at < time.as_secs_f64()).then_some(at)
        });
        let writes = moments.map(|at| async move {
            sleep_until(began + Duration::from_secs_f64(at)).await;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.create(kind, number, &self.fresh).await;
        });
        let writes = stream::iter(writes).take_until(sleep(2 * time));
        let written = writes.buffer_unordered(WRITERS);
        written.collect::<()>().await;
        first..self.next.load(Ordering::Relaxed)
    }

    async fn create(&self, kind: Kind, number: usize, namespace: &str) {
        let object = match kind {
            Kind::Events => self.event(number, namespace),
            Kind::ConfigMaps => json!({
                "metadata": {
                    "name": name(number),
                    "labels": { "pod": format!("pod-{}", number % PODS) },
                },
                "data": { "text": "x".repeat(self.text) },
            }),
        };
        let path = format!("/api/v1/namespaces/{namespace}/{}", kind.resource());
        self.direct.create(&path, &object).await.ok();
    }

    /// Returns an Event of a kubelet.
    fn event(&self, number: usize, namespace: &str) -> Value {
        let pod = number % PODS;
        let uid = match pod {
            0 => self.uid.clone(),
            _ => format!("{pod:08x}-0000-4000-8000-{pod:012x}"),
        };
        let (node, now) = (format!("node-{}", pod % 50), Timestamp::now().to_string());
        let message =
            format!("Back-off restarting failed container app in pod pod-{pod}_{namespace}({uid})");
        json!({
            "metadata": { "name": name(number) },
            "involvedObject": {
                "kind": "Pod",
                "namespace": namespace,
                "name": format!("pod-{pod}"),
                "uid": uid,
                "apiVersion": "v1",
                "resourceVersion": "1024",
                "fieldPath": "spec.containers{app}",
            },
            "reason": "BackOff",
            "message": message,
            "source": { "component": "kubelet", "host": node },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "reportingComponent": "kubelet",
            "reportingInstance": node,
        })
    }

    /// Starts kubefan without caches. Returns it and a client, which connects to it as
    /// [`Scene::direct`] does to the API server.
    pub(super) async fn kubefan(&self) -> (Kubefan, Client) {
        let flags = ["--tls-self-signed", "--auth", "caller"];
        let kubefan = Kubefan::start(&self.server, &flags).await;
        let authority = kubefan.authority().expect("a CA of its own");
        let connector = Connector::tls(&authority, None, &["http/1.1"]);
        let through = Client::new(kubefan.url(), connector).as_token(ADMIN);
        (kubefan, through)
    }

    /// Starts kubefan like [`Scene::kubefan`], and has it cache all objects of a kind in JSON.
    pub(super) async fn kubefan_with(&self, kind: Kind) -> (Kubefan, Client) {
        let (kubefan, through) = self.kubefan().await;
        self.fill(&kubefan, &through, kind).await;
        (kubefan, through)
    }

    /// Waits until kubefan has cached all objects of a kind in JSON.
    pub(super) async fn fill(&self, kubefan: &Kubefan, through: &Client, kind: Kind) {
        let (admin, resource) = (kubefan.admin(), kind.resource());
        let labels = [("resource", resource), ("format", "json")];
        eventually("a full cache", FILL, async || {
            kind.version(through).await?;
            match metric(&admin, "kubefan_cache_objects", &labels).await {
                cached if cached >= self.objects as f64 => Ok(()),
                cached => Err(format!("{cached} {resource}")),
            }
        })
        .await;
    }

    /// Returns the CPU time that the API server, etcd, kubefan and this process have used so far,
    /// in seconds.
    pub(super) fn cpu(&self, kubefan: Option<&Kubefan>) -> [f64; 4] {
        let [server, etcd] = [self.server.pid(), self.server.etcd_pid()].map(process::cpu);
        let clients = process::cpu(std::process::id());
        [server, etcd, kubefan.map_or(0.0, Kubefan::cpu), clients]
    }

    /// Returns the CPU time that was used since [`Scene::cpu`] returned `before`.
    pub(super) fn cpu_since(&self, before: [f64; 4], kubefan: Option<&Kubefan>) -> [f64; 4] {
        let after = self.cpu(kubefan);
        [0, 1, 2, 3].map(|of| after[of] - before[of])
    }
}

/// Returns the name of an object. Events have names like this, with the time in place of the
/// number.
fn name(number: usize) -> String {
    format!("pod-{}.{number:016x}", number % PODS)
}
