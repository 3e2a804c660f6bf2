//! Which resource is meant, and in which of the two serializations its objects are held.

use std::fmt;

/// Names a resource as URLs do: `pods` of `v1`, `deployments` of `apps/v1`.
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

    /// The `apiVersion` that objects of this resource carry: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `resource` or `resource.group`, as error messages of the API name it.
    pub fn group_resource(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// The collection's path: `/api/v1/pods`, or `/apis/apps/v1/namespaces/x/deployments`.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.as_str() {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        match namespace {
            None => format!("{root}/{}/{}", self.version, self.resource),
            Some(namespace) => format!(
                "{root}/{}/namespaces/{namespace}/{}",
                self.version, self.resource
            ),
        }
    }
}

impl fmt::Display for GroupVersionResource {
    /// `pods.v1`, `deployments.v1.apps`: the spelling kubectl accepts too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        match self.group.as_str() {
            "" => Ok(()),
            group => write!(f, ".{group}"),
        }
    }
}

/// What discovery says of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name in URLs.
    pub gvr: GroupVersionResource,
    /// Kind of its objects, such as `Pod`; the list's kind is this plus `List`.
    pub kind: String,
    /// Singular name, such as `pod`; may be empty.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// True when its objects live in namespaces.
    pub namespaced: bool,
    /// Verbs that the API server offers: `get`, `list`, `watch`, …
    pub verbs: Vec<String>,
}

impl Resource {
    /// True when the API server offers `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|offered| offered == verb)
    }
}

/// The two serializations that are cached, each by an informer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WireFormat {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl WireFormat {
    /// The media type of single objects and lists.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a watch response.
    pub fn watch_media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// `json` or `protobuf`, as metric labels have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }
}
