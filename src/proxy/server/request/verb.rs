//! The verb of a request.

/// What a request does. The API server authorizes the request by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A GET or HEAD of one object, or a GET of a path that is no resource.
    Get,
    /// A GET or HEAD of a collection.
    List,
    /// A GET or HEAD of a collection's changes.
    Watch,
    /// A POST to a resource.
    Create,
    /// A PUT to a resource.
    Update,
    /// A PATCH.
    Patch,
    /// A DELETE of one object.
    Delete,
    /// A DELETE of a collection.
    DeleteCollection,
    /// Any method on a deprecated path `/api/v1/proxy/…`.
    Proxy,
    /// Another method on a path that is no resource, in lower case. Empty for a method that has no
    /// verb on a resource.
    Other(String),
}

impl Verb {
    /// Returns the verb with this name.
    pub(super) fn named(name: &str) -> Self {
        match name {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "proxy" => Self::Proxy,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Returns the name that the API server's authorizers get.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => known.name().unwrap_or_default(),
        }
    }

    /// Returns the value of the metric label `verb`: `other` if clients could make up the verb.
    pub(in crate::server) fn label(&self) -> &'static str {
        match self {
            Self::Other(name) if name == "post" => "post",
            known => known.name().unwrap_or("other"),
        }
    }

    /// Returns true for GET, LIST and WATCH.
    pub(in crate::server) fn is_read(&self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Proxy => "proxy",
            Self::Other(_) => return None,
        })
    }
}

impl Default for Verb {
    fn default() -> Self {
        Self::Other(String::new())
    }
}
