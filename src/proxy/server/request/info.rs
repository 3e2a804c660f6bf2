//! Parses the method and URL of a request into its verb, resource and object.
//!
//! This is a pure function. `decide` and the authorization of reads depend on it, so it reads URLs
//! exactly as the API server does, oddities included.

use http::Method;
use kubefan_core::api::{GroupVersionResource, ListOptions, Query, RawFieldSelector};
use percent_encoding::percent_decode_str;

use super::Verb;

/// The subresources of long-running requests, as in kube-apiserver.
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
/// The path of kube-apiserver's profilers. Their requests run as long as they profile.
const PROFILER_PREFIX: &str = "/debug/pprof/";

/// What a request reads or writes. The API server authorizes it by most of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// False for paths such as `/healthz` or `/apis/apps/v1`; then only `verb` and `path` are set.
    pub is_resource_request: bool,
    /// What the request does. For non-resource requests it is the method.
    pub verb: Verb,
    /// The path, percent-decoded.
    pub path: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Resource; empty for malformed paths such as `/api/v1//pods`.
    pub resource: String,
    /// Namespace; empty for all namespaces and cluster scope.
    pub namespace: String,
    /// The object's name, from the path or the selector `metadata.name=`; empty if there is none.
    pub name: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// The path segments after the subresource.
    pub rest: Vec<String>,
    /// True for the deprecated paths `/api/v1/watch/…`.
    pub watch_path: bool,
    /// The parameter `fieldSelector` as the client wrote it; `None` for verbs that don't select.
    pub field_selector: Option<String>,
    /// The parameter `labelSelector` as the client wrote it; `None` for verbs that don't select.
    pub label_selector: Option<String>,
    /// The parameter `shardSelector` as the client wrote it; `None` if it is empty, and for verbs
    /// that don't select. The API server's authorizers do not get it.
    pub shard_selector: Option<String>,
}

impl RequestInfo {
    /// Parses a request line; `path` is percent-encoded, `query` is the text after `?`.
    ///
    /// A deprecated path without a resource (`/api/v1/watch`) counts as a non-resource request: it
    /// is forwarded, and the API server refuses it.
    pub fn parse(method: &Method, path: &str, query: &str) -> Self {
        let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
        let segments = split_path(&path);
        let resource_request = Self::of_resource(method, &segments);
        let Some(mut info) = resource_request else {
            return Self {
                verb: Verb::named(&method.as_str().to_lowercase()),
                path,
                ..Self::default()
            };
        };
        info.path = path;
        info.read_query(&Query::parse(query));
        info
    }

    /// Returns the request's resource; `None` for a non-resource request.
    pub fn gvr(&self) -> Option<GroupVersionResource> {
        self.is_resource_request
            .then(|| GroupVersionResource::new(&self.group, &self.version, &self.resource))
    }

    /// Returns true if a node, pod or service behind the API server may answer the request.
    pub(in crate::server) fn is_proxied(&self) -> bool {
        self.is_resource_request && self.path.split('/').any(|segment| segment == "proxy")
    }

    /// Returns true if the request is long-running by kube-apiserver's
    /// `BasicLongRunningRequestCheck`, with the verbs and subresources that kube-apiserver
    /// configures.
    pub(in crate::server) fn is_long_running(&self) -> bool {
        matches!(self.verb, Verb::Watch | Verb::Proxy)
            || self.is_resource_request
                && LONG_RUNNING_SUBRESOURCES.contains(&self.subresource.as_str())
            || !self.is_resource_request && self.path.starts_with(PROFILER_PREFIX)
    }

    /// Returns true for a GET of an object, but not of a subresource.
    pub(in crate::server) fn is_get_of_object(&self) -> bool {
        self.verb == Verb::Get && !self.name.is_empty() && self.subresource.is_empty()
    }

    fn of_resource(method: &Method, segments: &[&str]) -> Option<Self> {
        let (group, version, parts) = match segments {
            ["api", version, parts @ ..] => ("", *version, parts),
            ["apis", group, version, parts @ ..] => (*group, *version, parts),
            _ => return None,
        };
        let (special_verb, parts) = match parts {
            [] | ["watch" | "proxy"] => return None,
            [word @ ("watch" | "proxy"), parts @ ..] => (Some(*word), parts),
            _ => (None, parts),
        };
        let (namespace, parts) = match parts {
            ["namespaces", namespace, "status" | "finalize", ..] => (*namespace, parts),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
            ["namespaces", namespace] => (*namespace, parts),
            _ => ("", parts),
        };
        let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
        let has_subresource = special_verb != Some("proxy");
        Some(Self {
            is_resource_request: true,
            verb: Verb::named(special_verb.unwrap_or_else(|| verb_of(method))),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: if has_subresource {
                part(2)
            } else {
                String::new()
            },
            rest: parts.iter().skip(3).map(|&rest| rest.to_owned()).collect(),
            watch_path: special_verb == Some("watch"),
            ..Self::default()
        })
    }

    fn read_query(&mut self, query: &Query) {
        let special = self.watch_path || self.verb == Verb::Proxy;
        if self.name.is_empty() && self.verb == Verb::Get {
            self.read_list_options(query);
        }
        if self.name.is_empty() && self.verb == Verb::Delete {
            self.verb = Verb::DeleteCollection;
        }
        let selects = matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        if selects {
            let shard = query.first("shardSelector").map(str::to_owned);
            self.shard_selector = shard.filter(|shard| !shard.is_empty());
        }
        if selects && !special {
            self.field_selector = query.first("fieldSelector").map(str::to_owned);
            self.label_selector = query.first("labelSelector").map(str::to_owned);
        }
    }

    /// Sets the verb to `list` or `watch`, and the name that `metadata.name=` requires.
    fn read_list_options(&mut self, query: &Query) {
        let is_watch = query.flag("watch").unwrap_or(false);
        self.verb = if is_watch { Verb::Watch } else { Verb::List };
        // Invalid options give no name; the request is forwarded.
        let fields = ListOptions::from_query(query).map(|options| options.fields);
        let name = fields
            .as_ref()
            .ok()
            .and_then(RawFieldSelector::required_name);
        if let Some(name) = name.filter(|name| is_path_segment(name)) {
            self.name = name.to_owned();
        }
    }
}

/// Returns true if `name` can be an object's name in a path. The empty name passes too.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

fn split_path(path: &str) -> Vec<&str> {
    match path.trim_matches('/') {
        "" => Vec::new(),
        trimmed => trimmed.split('/').collect(),
    }
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
