//! The simulator as its users see it: over a socket, and without one.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubefan_core::upstream::{Client, ClientConfig};
use serde_json::json;

use super::map;
use crate::simulator::{ApiServer, DefinitionError, RequestFault};

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn a_program_connects_by_its_kubeconfig() {
    let server = ApiServer::start().await.expect("a port");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), server.kubeconfig()).expect("it is written");
    let client = Client::connect(ClientConfig {
        kubeconfig: Some(file.path().to_owned()),
        ..ClientConfig::default()
    });
    let client = client.await.expect("a client").to_kube();
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let created = maps.create(&PostParams::default(), &map("a", "1")).await;
    let created = created.expect("it is created");
    let stored: ConfigMap = server.get(Some("default"), "a").expect("it is stored");
    assert_eq!(stored, created);
    server.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_put_read_and_deleted() {
    let server = ApiServer::start().await.expect("a port");
    let first = server.put(&map("a", "1")).expect("it is created");
    let second = server.put(&map("a", "2")).expect("it is replaced");
    assert_eq!(second.metadata.uid, first.metadata.uid);
    assert_ne!(
        second.metadata.resource_version,
        first.metadata.resource_version
    );
    assert_eq!(server.put(&first).expect_err("it is old").code, 409);
    let maps = Api::<ConfigMap>::namespaced(server.kube_client(), "default");
    assert_eq!(maps.get("a").await.expect("it exists"), second);
    server
        .delete::<ConfigMap>(Some("default"), "a")
        .expect("it exists");
    let missing = server.get::<ConfigMap>(Some("default"), "a");
    assert_eq!(missing.expect_err("it is gone").code, 404);
    let default: Namespace = server.get(None, "default").expect("each cluster has it");
    assert_eq!(default.metadata.name.as_deref(), Some("default"));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_served_after_their_definition() {
    let server = ApiServer::start().await.expect("a port");
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    let resource = ApiResource::from_gvk(&kind);
    let widgets =
        || Api::<DynamicObject>::namespaced_with(server.kube_client(), "default", &resource);
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
    });
    let widget: DynamicObject = serde_json::from_value(widget).expect("an object");
    let create = async || widgets().create(&PostParams::default(), &widget).await;
    assert!(create().await.is_err());
    server.define(WIDGETS).expect("a definition");
    create().await.expect("it is created");
    let deleted = widgets().delete("w", &DeleteParams::default()).await;
    deleted.expect("it is deleted");
    let refused = server.define("a: [");
    assert!(
        matches!(refused, Err(DefinitionError::Yaml(_))),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn faults_reach_clients() {
    let server = ApiServer::start().await.expect("a port");
    server.put(&map("a", "1")).expect("it is created");
    let maps = Api::<ConfigMap>::namespaced(server.kube_client(), "default");
    server.faults().fail_requests(RequestFault::ServerError, 1);
    let failed = maps.get("a").await.expect_err("a fault");
    assert!(
        matches!(&failed, kube::Error::Api(status) if status.code == 500),
        "{failed:?}"
    );
    maps.get("a").await.expect("one request only");
}
