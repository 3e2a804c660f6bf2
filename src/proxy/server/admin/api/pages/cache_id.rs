//! CacheId: which cache a part of a page is about.

use kubefan_core::informer::{CacheName, ObjectContent};
use schemars::JsonSchema;
use serde::Serialize;

/// A cache: a resource in one wire format, and which of its objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct CacheId {
    /// The API group; empty for the core group.
    pub(super) group: String,
    /// The version of the API.
    pub(super) version: String,
    /// The plural name of the resource.
    pub(super) resource: String,
    /// The wire format of the objects: json or protobuf.
    pub(super) format: &'static str,
    /// The part of each object that the cache has: whole or metadata.
    pub(super) content: &'static str,
    /// The only namespace of the cached objects; absent for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The label selector of the cached objects; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label_selector: Option<String>,
    /// The field selector of the cached objects; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) field_selector: Option<String>,
}

impl From<&CacheName> for CacheId {
    fn from(name: &CacheName) -> Self {
        let unless_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        let scope = &name.scope;
        Self {
            group: name.resource.group.clone(),
            version: name.resource.version.clone(),
            resource: name.resource.resource.clone(),
            format: name.format.name(),
            content: match name.content {
                ObjectContent::Whole => "whole",
                ObjectContent::Metadata => "metadata",
            },
            namespace: scope.namespace.clone(),
            label_selector: unless_empty(&scope.label_selector),
            field_selector: unless_empty(&scope.field_selector),
        }
    }
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::{GroupVersionResource, WireFormat};
    use kubefan_core::upstream::Scope;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_limits_a_cache_is_shown() {
        let whole = CacheName {
            resource: GroupVersionResource::new("apps", "v1", "deployments"),
            format: WireFormat::Protobuf,
            content: ObjectContent::Whole,
            scope: Scope::default(),
        };
        let part = CacheName {
            content: ObjectContent::Metadata,
            scope: Scope {
                namespace: Some("shop".to_owned()),
                label_selector: "app=web".to_owned(),
                field_selector: "metadata.name=a".to_owned(),
            },
            ..whole.clone()
        };
        let mut expected = json!({
            "group": "apps", "version": "v1", "resource": "deployments",
            "format": "protobuf", "content": "whole",
        });
        let shown = |name: &CacheName| serde_json::to_value(CacheId::from(name)).expect("JSON");
        assert_eq!(shown(&whole), expected);
        expected["content"] = "metadata".into();
        expected["namespace"] = "shop".into();
        expected["labelSelector"] = "app=web".into();
        expected["fieldSelector"] = "metadata.name=a".into();
        assert_eq!(shown(&part), expected);
    }
}
