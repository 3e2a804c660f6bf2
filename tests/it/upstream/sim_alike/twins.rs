//! An API server and a simulator with equal objects.

use serde_json::{Value, json};

use super::wording::Names;
use crate::support::clients::client::Client;
use crate::support::cluster::{define_widgets, fill_namespace};
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::sim::Sim;
use crate::support::states;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACES: &str = "/api/v1/namespaces";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind from the simulator's discovery.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// The path of the API version, such as `/api/v1`.
    pub(super) root: String,
    pub(super) plural: String,
    namespaced: bool,
    has_status: bool,
    /// The path of the collection that the cases read; fills `{each}`.
    pub(super) home: String,
    /// The name of an object in `home`; fills `{one}`.
    pub(super) one: String,
}

/// Clients of both servers, their names for common objects, and the namespaces with the objects.
pub(super) struct Twins {
    pub(super) real: Client,
    pub(super) simulated: Client,
    pub(super) real_names: Names,
    pub(super) simulated_names: Names,
    /// The namespace with the objects of tests/kubectl/files/namespace.yaml.
    pub(super) namespace: String,
    /// The namespace with the objects of tests/golden/table/states.json except the Services.
    pub(super) states: String,
    /// The namespace with the Services of states.json. The Services are separate because the API
    /// server creates Events for them at any time.
    pub(super) services: String,
    pub(super) kinds: Vec<Kind>,
    _sim: Sim,
}

impl Kind {
    /// Returns the path of the kind's objects in `namespace`; of all its objects
    /// if the kind is cluster-scoped.
    pub(super) fn collection(&self, namespace: &str) -> String {
        match self.namespaced {
            true => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
            false => self.everywhere(),
        }
    }

    /// Returns the path of the kind's objects in all namespaces.
    pub(super) fn everywhere(&self) -> String {
        format!("{}/{}", self.root, self.plural)
    }
}

impl Twins {
    /// Creates objects in an API server, and copies them with their defaults to a new simulator.
    pub(super) async fn new(server: &ApiServer) -> Self {
        let real = server.client();
        define_widgets(server).await;
        let namespace = server.namespace("alike").await;
        let states = server.namespace("states").await;
        let _files = fill_namespace(server, &namespace).await;
        let services = server.namespace("services").await;
        create_states(&real, &states, &services).await;
        let widgets = format!("/apis/example.kubefan.io/v1/namespaces/{states}/widgets");
        let widget = json!({
            "apiVersion": "example.kubefan.io/v1", "kind": "Widget",
            "metadata": { "name": "green", "annotations": { "text": "<é&\u{2028}>" } },
            "spec": { "color": "green", "note": "a \"quoted\" word" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        real.create(&widgets, &widget).await.ok();
        let sim = Sim::start(&[]).await;
        let mut twins = Self {
            real,
            simulated: sim.client(),
            real_names: Names::default(),
            simulated_names: Names::default(),
            namespace,
            states,
            services,
            kinds: Vec::new(),
            _sim: sim,
        };
        twins.copy().await;
        twins.record_names().await;
        twins
    }

    /// Creates in the simulator all objects that the API server has in the three namespaces, of the
    /// kinds that the simulator serves.
    async fn copy(&mut self) {
        let ours = [&self.namespace, &self.states, &self.services].map(String::clone);
        for namespace in items(&self.real, NAMESPACES).await {
            let name = namespace["metadata"]["name"].as_str().expect("a name");
            // The other namespaces exist in every cluster, including the simulated one.
            if ours.iter().any(|own| name.starts_with(own)) {
                copy_object(&self.simulated, NAMESPACES, &namespace, true).await;
            }
        }
        for definition in items(&self.real, DEFINITIONS).await {
            copy_object(&self.simulated, DEFINITIONS, &definition, true).await;
        }
        self.kinds = kinds(&self.simulated).await;
        assert!(self.kinds.len() > 20, "{:?}", self.kinds);
        let kinds = self.kinds.iter_mut();
        for kind in kinds.filter(|kind| !DEFINITIONS.ends_with(&kind.plural)) {
            let namespaces = match (kind.plural.as_str(), kind.namespaced) {
                ("namespaces", _) => &[],
                (_, true) => ours.as_slice(),
                (_, false) => &ours[..1],
            };
            for namespace in namespaces {
                let path = kind.collection(namespace);
                if kind.plural == "events" && *namespace == self.services {
                    continue;
                }
                for object in items(&self.real, &path).await {
                    copy_object(&self.simulated, &path, &object, kind.has_status).await;
                }
            }
        }
        for kind in &mut self.kinds {
            kind.home = match kind.plural.as_str() {
                "services" => kind.collection(&self.services),
                _ => kind.collection(&self.states),
            };
            let all = items(&self.simulated, &kind.home).await;
            let name = all.first().map(|object| object["metadata"]["name"].clone());
            let name = name.unwrap_or_else(|| panic!("no {}", kind.plural));
            kind.one = name.as_str().expect("a name").to_owned();
        }
    }

    /// Records the uid and version of each current object at both servers under a common name.
    async fn record_names(&mut self) {
        for kind in self.kinds.clone() {
            let path = kind.everywhere();
            let real = items(&self.real, &path).await;
            for simulated in items(&self.simulated, &path).await {
                let key = |object: &Value| {
                    let metadata = &object["metadata"];
                    (metadata["namespace"].clone(), metadata["name"].clone())
                };
                let twin = real.iter().find(|real| key(real) == key(&simulated));
                let twin = twin.unwrap_or_else(|| panic!("{path}: {simulated}"));
                let (namespace, name) = key(twin);
                for what in ["resourceVersion", "uid"] {
                    let own = |object: &Value| object["metadata"][what].as_str().map(str::to_owned);
                    let (own, other) = (own(twin), own(&simulated));
                    let (own, other) = own.zip(other).expect("both have it");
                    // The common name of a uid is the object's name. The common name of a version
                    // is the API server's version.
                    let common = match what {
                        "uid" => format!("uid of {namespace}/{name}"),
                        _ => format!("version {own}"),
                    };
                    self.real_names.record_names(&own, &common);
                    self.simulated_names.record_names(&other, &common);
                }
            }
        }
    }

    /// Returns the current versions of the API server and of the simulator. Lists every kind once,
    /// so that reads at these versions can be served later.
    pub(super) async fn versions(&self) -> (String, String) {
        let version = async |client: &Client| {
            let mut first = None;
            for kind in &self.kinds {
                let path = format!("{}?limit=1", kind.everywhere());
                let list = client.get(&path).await.ok().json();
                let version = list["metadata"]["resourceVersion"].as_str();
                first.get_or_insert(version.expect("a version").to_owned());
            }
            first.expect("a kind")
        };
        (version(&self.real).await, version(&self.simulated).await)
    }

    /// Makes equal changes, deletions and creations in one order at both servers.
    pub(super) async fn make_some_changes(&mut self) {
        for kind in self.kinds.clone() {
            let path = format!("{}/{}", kind.home, kind.one);
            let change = json!({ "metadata": { "labels": { "changed": "yes" } } });
            for client in [&self.real, &self.simulated] {
                client.merge(&path, &change).await.ok();
            }
        }
        let maps = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let widgets = format!(
            "/apis/example.kubefan.io/v1/namespaces/{}/widgets",
            self.namespace
        );
        let created = json!({
            "metadata": { "name": "second", "labels": { "marked": "yes" } },
            "data": { "text": "<é&\u{2028}>" },
        });
        let marked = |value: Value| json!({ "metadata": { "labels": { "marked": value } } });
        for client in [&self.real, &self.simulated] {
            client.delete(&format!("{maps}/second")).await.ok();
            client.create(&maps, &created).await.ok();
            let third = format!("{maps}/third");
            client.merge(&third, &marked(Value::Null)).await.ok();
            client.merge(&third, &marked("no".into())).await.ok();
            let color = |color: &str| json!({ "spec": { "color": color } });
            let red = format!("{widgets}/red");
            client.merge(&red, &color("blue")).await.ok();
            client.merge(&red, &color("red")).await.ok();
            client.delete(&format!("{widgets}/blue")).await.ok();
        }
        self.record_names().await;
    }
}

async fn items(client: &Client, path: &str) -> Vec<Value> {
    let mut list = client.get(path).await.ok().json();
    let api_version = list["apiVersion"].clone();
    let kind = list["kind"].as_str().expect("a kind");
    let kind = kind.trim_end_matches("List").to_owned();
    let items = list["items"].as_array_mut().expect("items");
    for item in items.iter_mut() {
        item["apiVersion"] = api_version.clone();
        item["kind"] = kind.clone().into();
    }
    std::mem::take(items)
}

/// Returns the object without the metadata that a server sets itself.
pub(super) fn as_new(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    for own in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    ] {
        metadata.shift_remove(own);
    }
    object
}

/// Creates `object` in the simulator, including its status.
async fn copy_object(simulated: &Client, path: &str, object: &Value, has_status: bool) {
    let copy = as_new(object);
    simulated.create(path, &copy).await.ok();
    if has_status && copy["status"].is_object() {
        let name = copy["metadata"]["name"].as_str().expect("a name");
        let own = format!("{path}/{name}/status");
        simulated.replace(&own, &copy).await.ok();
    }
}

/// Creates the objects of states.json, except those that are to be deleted, because the two servers
/// would set different deletion times.
async fn create_states(client: &Client, namespace: &str, services: &str) {
    let states = states::all(namespace);
    for state in states.iter().filter(|state| state["delete"] != true) {
        let path = state["path"].as_str().expect("a path");
        let path = if path.ends_with("/services") {
            &path.replace(namespace, services)
        } else {
            path
        };
        states::create(client, path, state).await;
    }
}

/// Returns the kinds in the simulator's discovery that can be listed.
async fn kinds(simulated: &Client) -> Vec<Kind> {
    let client = simulated.with("accept", AGGREGATED);
    let mut kinds = Vec::new();
    for root in ["/api", "/apis"] {
        let groups = client.get(root).await.ok().json();
        for group in groups["items"].as_array().expect("groups") {
            let name = group["metadata"]["name"].as_str();
            for version in group["versions"].as_array().expect("versions") {
                let number = version["version"].as_str().expect("a version");
                let root = match name {
                    Some(name) => format!("{root}/{name}/{number}"),
                    None => format!("{root}/{number}"),
                };
                let resources = version["resources"].as_array().expect("resources");
                kinds.extend(resources.iter().filter_map(|found| kind(&root, found)));
            }
        }
    }
    kinds
}

fn kind(root: &str, resource: &Value) -> Option<Kind> {
    let verbs = resource["verbs"].as_array()?;
    verbs.iter().find(|verb| *verb == "list")?;
    let subresources = resource["subresources"].as_array();
    let mut subresources = subresources.into_iter().flatten();
    Some(Kind {
        root: root.to_owned(),
        plural: resource["resource"].as_str()?.to_owned(),
        namespaced: resource["scope"] == "Namespaced",
        has_status: subresources.any(|found| found["subresource"] == "status"),
        home: String::new(),
        one: String::new(),
    })
}
