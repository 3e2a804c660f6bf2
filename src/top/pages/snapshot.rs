//! What the stream of snapshots has. The fields are those of the admin API, which describes them.

use serde::Deserialize;

/// A snapshot of several pages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Snapshot {
    pub(crate) version: String,
    pub(crate) caches: Caches,
    pub(crate) clients: Clients,
    pub(crate) freshness: Freshness,
    pub(crate) memory: Memory,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Caches {
    pub(crate) upstream_responding: bool,
    pub(crate) total: usize,
    pub(crate) items: Vec<Cache>,
    pub(crate) requests: Vec<ResourceRequests>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cache {
    pub(crate) cache: CacheId,
    pub(crate) state: String,
    pub(crate) activity: Option<String>,
    pub(crate) activity_seconds: Option<f64>,
    pub(crate) on_demand: bool,
    pub(crate) applied_version: Option<String>,
    pub(crate) objects: u64,
    pub(crate) object_bytes: u64,
    pub(crate) event_log: EventLog,
    pub(crate) watchers: u64,
    pub(crate) selections: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) last_change_seconds: Option<f64>,
    pub(crate) watch_age_seconds: Option<f64>,
    pub(crate) events_total: u64,
    pub(crate) sent_events_total: u64,
    pub(crate) lists_total: u64,
    pub(crate) epochs_total: u64,
}

/// Which cache it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CacheId {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) format: String,
    pub(crate) content: String,
    pub(crate) namespace: Option<String>,
    pub(crate) label_selector: Option<String>,
    pub(crate) field_selector: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EventLog {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) span_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceRequests {
    pub(crate) cache: u64,
    pub(crate) forwarded: u64,
    pub(crate) rejected: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Clients {
    pub(crate) total: usize,
    pub(crate) watches: u64,
    pub(crate) items: Vec<Connection>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Connection {
    pub(crate) address: String,
    pub(crate) protocol: String,
    pub(crate) tls: bool,
    pub(crate) age_seconds: f64,
    pub(crate) user_number: Option<u64>,
    pub(crate) user_agent: Option<String>,
    pub(crate) requests: u64,
    pub(crate) watches: u64,
    pub(crate) held_bytes: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) slowest_watch: Option<SlowWatch>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlowWatch {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) behind_events: u64,
    pub(crate) behind_seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Freshness {
    pub(crate) items: Vec<CacheFreshness>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CacheFreshness {
    pub(crate) cache: CacheId,
    pub(crate) policy: String,
    pub(crate) last_proof: Option<LastProof>,
    pub(crate) last_failure: Option<LastFailure>,
    pub(crate) unproven_total: u64,
    pub(crate) isolated_selections: u64,
    pub(crate) doubted: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LastProof {
    pub(crate) method: String,
    pub(crate) age_seconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LastFailure {
    pub(crate) reason: String,
    pub(crate) age_seconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Memory {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) available_bytes: u64,
}

/// The names of users.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Users {
    pub(crate) items: Vec<User>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct User {
    pub(crate) number: u64,
    pub(crate) name: String,
}

// === impl CacheId, SlowWatch ===

impl CacheId {
    /// Returns the resource as kubectl names it, such as `pods` or `deployments.apps`.
    pub(crate) fn resource_name(&self) -> String {
        resource_name(&self.resource, &self.group)
    }

    /// Returns which objects of the resource the cache has.
    pub(crate) fn scope(&self) -> String {
        let namespace = self.namespace.iter().map(|name| format!("-n {name}"));
        let labels = self.label_selector.iter();
        let labels = labels.map(|selector| format!("-l {selector}"));
        let fields = self.field_selector.iter();
        let fields = fields.map(|selector| format!("--field-selector {selector}"));
        let parts: Vec<_> = namespace.chain(labels).chain(fields).collect();
        match parts.is_empty() {
            true => "all".to_owned(),
            false => parts.join(" "),
        }
    }
}

impl SlowWatch {
    pub(crate) fn resource_name(&self) -> String {
        resource_name(&self.resource, &self.group)
    }
}

/// Returns the name of a resource with its group, if it has one.
pub(crate) fn resource_name(resource: &str, group: &str) -> String {
    match group {
        "" => resource.to_owned(),
        _ => format!("{resource}.{group}"),
    }
}
