//! Tests of the public simulator, and of factories and controllers on it.

mod controllers;
mod factories;
mod server;

use k8s_openapi::api::core::v1::ConfigMap;

/// Returns a config map in the namespace `default`.
fn map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("default".to_owned());
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("value".to_owned(), value.to_owned())].into());
    map
}
