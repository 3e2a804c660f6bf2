//! Names of resources, what discovery reports about them, and the wire formats of their objects.

use std::fmt;

/// The name of a resource as in URLs: `pods` in `v1`, `deployments` in `apps/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// Plural, lower-case resource name, such as `pods`.
    pub resource: String,
}

impl GroupVersionResource {
    /// Makes a name from its three parts; an empty `group` is the core group.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Returns true for Events, of either group. They are the only resource that the API server
    /// serves without a cache of its own: several may change at one version, no bookmarks come, and
    /// a list at version 0 has pages.
    pub fn is_events(&self) -> bool {
        self.resource == "events" && matches!(self.group.as_str(), "" | "events.k8s.io")
    }

    /// Returns the `apiVersion` of the resource's objects, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the resource's name in the API server's error messages: `pods`, or
    /// `deployments.apps`.
    pub fn group_resource(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Returns the collection's URL path: `/api/v1/pods`, or
    /// `/apis/apps/v1/namespaces/x/deployments`.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        let (version, resource) = (&self.version, &self.resource);
        match namespace {
            None => format!("{root}/{version}/{resource}"),
            Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{resource}"),
        }
    }
}

impl fmt::Display for GroupVersionResource {
    /// Prints `pods.v1` or `deployments.v1.apps`, a spelling that kubectl accepts too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, &self.resource, &self.version, &self.group)
    }
}

fn print(f: &mut fmt::Formatter<'_>, name: &str, version: &str, group: &str) -> fmt::Result {
    match group {
        "" => write!(f, "{name}.{version}"),
        group => write!(f, "{name}.{version}.{group}"),
    }
}

/// The kind of an object: `Pod` in `v1`, `Deployment` in `apps/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// The kind's name, such as `Pod`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Makes a kind from its three parts; an empty `group` is the core group.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Returns the kind of an object with these members `apiVersion` and `kind`.
    pub fn of(api_version: &str, kind: impl Into<String>) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }
}

impl fmt::Display for GroupVersionKind {
    /// Prints `Pod.v1` or `Deployment.v1.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, &self.kind, &self.version, &self.group)
    }
}

/// One resource as the API server's discovery describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource's group, version and plural name.
    pub gvr: GroupVersionResource,
    /// The kind of the resource's objects, such as `Pod`. Lists usually have this kind plus `List`.
    pub kind: String,
    /// The resource's singular name, such as `pod`; may be empty.
    pub singular: String,
    /// The resource's short names, such as `po`.
    pub short_names: Vec<String>,
    /// True if the resource's objects are in namespaces, false if they are cluster-scoped.
    pub namespaced: bool,
    /// The verbs that the API server offers for the resource, such as `get`, `list` and `watch`.
    pub verbs: Vec<String>,
}

impl Resource {
    /// Returns the kind of the resource's objects, with its group and version.
    pub fn gvk(&self) -> GroupVersionKind {
        let GroupVersionResource { group, version, .. } = &self.gvr;
        GroupVersionKind::new(group, version, &self.kind)
    }

    /// Returns true if the API server offers `verb` for the resource.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }
}

/// An encoding of objects on the wire. For each of the two formats a resource has its own informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WireFormat {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl WireFormat {
    /// Returns the media type of objects and lists in this format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Returns the `Content-Type` of a watch response in this format.
    pub fn watch_media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// Returns the format's value in metric labels: `json` or `protobuf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }
}
