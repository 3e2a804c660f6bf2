//! An API server with objects of the kinds that the products read, and a writer that changes them.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method};
use kubefan_tools::workload::{Config, ObjectPath, Operation, Workload};
use rand::Rng;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private_with};
use crate::support::settings::dice;

/// The namespace for the objects of products that write, and for the writer's own.
pub(super) const NAMESPACE: &str = "products";
const NETWORKING: &str = "/apis/networking.k8s.io/v1";
const NODES: usize = 40;
const PODS: usize = 1_500;
/// The number of services with an Ingress, Endpoints, a StatefulSet and a claim.
const SERVED: usize = 50;
const CERTIFICATES: usize = 20;
/// The number of objects that are created concurrently.
const WRITERS: usize = 8;
/// The time between two writes.
const PAUSE: Duration = Duration::from_millis(100);
/// The workload's daemon sets have privileged pods, and each service needs an address.
const FLAGS: [&str; 2] = [
    "--allow-privileged=true",
    "--service-cluster-ip-range=10.0.0.0/16",
];
/// Fields that the API server sets, or that conflict with an object's name.
const OF_SERVER: [&str; 5] = [
    "uid",
    "generation",
    "creationTimestamp",
    "generateName",
    "managedFields",
];
/// Fields of a pod's spec that the API server's admission computes, and rejects in a request.
const OF_ADMISSION: [&str; 3] = ["priority", "priorityClassName", "preemptionPolicy"];
const WITH_STATUS: [&str; 5] = ["nodes", "pods", "deployments", "replicasets", "daemonsets"];
/// The resources whose objects the writer changes.
const CHANGED: [&str; 5] = ["pods", "leases", "deployments", "endpointslices", "nodes"];

/// A filled API server. Its writer ends when this is dropped.
pub(super) struct Scene {
    pub(super) server: ApiServer,
    pub(super) objects: Vec<ObjectPath>,
    pub(super) writer: JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

impl Scene {
    /// Starts an API server with some thousands of objects, and the writer. The directory of the
    /// products has the custom resource definitions.
    pub(super) async fn start(folder: &Path) -> Self {
        let server = private_with(&FLAGS).await;
        let client = server.client();
        let objects = fill(&client).await;
        define_certificates(&client, folder).await;
        let writer = tokio::spawn(write(client, objects.clone()));
        Self {
            server,
            objects,
            writer,
        }
    }
}

/// Creates the objects of a synthetic cluster, and some of kinds that it lacks.
async fn fill(client: &Client) -> Vec<ObjectPath> {
    let config = Config {
        nodes: NODES,
        pods: PODS,
        seed: 1,
        now: SystemTime::now(),
    };
    let operations: Vec<_> = Workload::new(config).initial().collect();
    let created: Vec<_> = operations
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Create { target, object } => Some((target, object)),
            _ => None,
        })
        .collect();
    let objects: Vec<_> = created.iter().map(|(target, _)| target.clone()).collect();
    let (namespaces, others): (Vec<_>, Vec<_>) = created
        .into_iter()
        .partition(|(target, _)| target.resource == "namespaces");
    for (target, object) in namespaces {
        create(client, &target, object).await;
    }
    let others = others.into_iter();
    stream::iter(others.map(|(target, object)| async move {
        create(client, &target, object).await;
    }))
    .buffer_unordered(WRITERS)
    .collect::<()>()
    .await;
    add_kinds(client, &objects).await;
    objects
}

async fn create(client: &Client, target: &ObjectPath, mut object: Value) {
    let status = remove(&mut object, "status");
    for field in OF_SERVER {
        remove(&mut object["metadata"], field);
    }
    match target.resource {
        "pods" => {
            for field in OF_ADMISSION {
                remove(&mut object["spec"], field);
            }
        }
        "services" if object["spec"]["clusterIP"] != "None" => {
            remove(&mut object["spec"], "clusterIP");
            remove(&mut object["spec"], "clusterIPs");
        }
        // The selectors of its jobs have the workload's uids.
        "jobs" => object["spec"]["manualSelector"] = true.into(),
        _ => {}
    }
    let made = client.create(&collection(target), &object).await;
    // The API server itself creates some namespaces and services.
    if made.status == 409 {
        return;
    }
    made.ok();
    if let Some(status) = status
        && WITH_STATUS.contains(&target.resource)
    {
        let path = format!("{}/status", path(target));
        client.merge(&path, &json!({ "status": status })).await.ok();
    }
}

fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.shift_remove(field)
}

/// Returns the path of the collection that has the object.
fn collection(target: &ObjectPath) -> String {
    let ObjectPath { group, version, .. } = target;
    let root = match target.group {
        "" => format!("/api/{version}"),
        _ => format!("/apis/{group}/{version}"),
    };
    match &target.namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", target.resource),
        None => format!("{root}/{}", target.resource),
    }
}

fn path(target: &ObjectPath) -> String {
    format!("{}/{}", collection(target), target.name)
}

/// Creates an Ingress, Endpoints, a StatefulSet and a PersistentVolumeClaim for each of some services.
async fn add_kinds(client: &Client, objects: &[ObjectPath]) {
    let services = objects.iter().filter(|path| path.resource == "services");
    let services = services.filter(|path| path.namespace.as_deref() != Some("default"));
    for (number, service) in services.take(SERVED).enumerate() {
        let namespace = service.namespace.as_deref().expect("a namespace");
        let name = format!("web-{number}");
        for (root, resource, object) in beside(&service.name, &name) {
            let path = format!("{root}/namespaces/{namespace}/{resource}");
            client.create(&path, &object).await.ok();
        }
        let ingress = format!("{NETWORKING}/namespaces/{namespace}/ingresses/{name}/status");
        let address = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
        let change = json!({ "status": address });
        client.merge(&ingress, &change).await.ok();
    }
}

/// Returns objects beside a service: the root of the path, the resource, and the object.
fn beside(service: &str, name: &str) -> [(&'static str, &'static str, Value); 4] {
    let backend = json!({ "service": { "name": service, "port": { "number": 80 } } });
    let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
    let host = format!("{name}.example.org");
    let rules = json!([{ "host": host, "http": { "paths": paths } }]);
    let ingress = json!({ "metadata": { "name": name }, "spec": { "rules": rules } });

    let subsets = json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": [{ "port": 80 }] }]);
    let endpoints = json!({ "metadata": { "name": service }, "subsets": subsets });

    let labels = json!({ "app": name });
    let containers = json!([{ "name": "main", "image": "example.com/web" }]);
    let stateful_set = json!({
        "metadata": { "name": name },
        "spec": {
            "serviceName": name,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": containers } },
        },
    });

    let spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } },
    });
    let claim = json!({ "metadata": { "name": name }, "spec": spec });
    [
        (NETWORKING, "ingresses", ingress),
        ("/api/v1", "endpoints", endpoints),
        ("/apis/apps/v1", "statefulsets", stateful_set),
        ("/api/v1", "persistentvolumeclaims", claim),
    ]
}

/// Creates cert-manager's definitions, an issuer of self-signed certificates, and Certificates.
async fn define_certificates(client: &Client, folder: &Path) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/yaml"));
    let files = folder.join("cert-manager-crds");
    let files = fs::read_dir(&files).unwrap_or_else(|error| panic!("{}: {error}", files.display()));
    for file in files {
        let file = file.expect("an entry").path();
        let definition = fs::read_to_string(file).expect("a file");
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = client.send(Method::POST, path, &headers, definition.into());
        made.await.ok();
    }
    let issuers = "/apis/cert-manager.io/v1/clusterissuers";
    for served in [issuers, "/apis/cert-manager.io/v1/certificates"] {
        eventually(served, Duration::from_secs(20), async || {
            client.get(served).await.is(200)
        })
        .await;
    }
    let issuer = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer",
        "metadata": { "name": "self" }, "spec": { "selfSigned": {} },
    });
    client.create(issuers, &issuer).await.ok();
    let namespace = json!({ "metadata": { "name": NAMESPACE } });
    client.create("/api/v1/namespaces", &namespace).await.ok();
    for number in 0..CERTIFICATES {
        create_certificate(client, &format!("first-{number}")).await;
    }
}

async fn create_certificate(client: &Client, name: &str) {
    let path = format!("/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates");
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": { "name": name },
        "spec": {
            "secretName": name, "dnsNames": [format!("{name}.example.org")],
            "issuerRef": { "name": "self", "kind": "ClusterIssuer" },
        },
    });
    client.create(&path, &certificate).await.ok();
}

/// Changes random objects, and creates a few, until the task is aborted.
async fn write(client: Client, objects: Vec<ObjectPath>) {
    let of = |resource| {
        let chosen = objects.iter().filter(move |path| path.resource == resource);
        chosen.map(path).collect::<Vec<_>>()
    };
    let changed = CHANGED.map(of);
    let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let mut dice = dice();
    let mut ticks = interval(PAUSE);
    for number in 0_usize.. {
        ticks.tick().await;
        match number % 30 {
            10 => create_certificate(&client, &format!("later-{number}")).await,
            0 | 20 => {
                // The manager copies these.
                let name = format!("copied-{number}");
                let object = json!({
                    "metadata": { "name": name }, "data": { "round": number.to_string() },
                });
                client.create(&config_maps, &object).await.ok();
            }
            _ => {
                let paths = &changed[number % changed.len()];
                let object = &paths[dice.random_range(0..paths.len())];
                let annotations = json!({ "kubefan.io/round": number.to_string() });
                let change = json!({ "metadata": { "annotations": annotations } });
                client.merge(object, &change).await.ok();
            }
        }
    }
}
