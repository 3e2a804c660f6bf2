//! An entry of `cache.resources`: a name, or a name with the objects to cache and how.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::freshness_rule::FreshnessRule;
use super::units::{ByteSize, Period};

/// An entry with every key, for the sample file.
pub(in crate::config) const EXAMPLE: &str = "\
In namespaces and selectors $(NAME) is replaced by the environment variable NAME, and $$ by a
dollar sign. This is an entry with every key:

  - resource: pods
    namespaces: [web, db]                   # one cache for each; default: all namespaces
    labelSelector: app in (a,b)             # default: all objects
    fieldSelector: spec.nodeName=$(NODE_NAME)
    onDemand: true                          # cache it at its first LIST or WATCH
    freshness: bounded:5s                   # default: as freshness below, and so on
    retentionAge: 5m
    retentionBytes: 128Mi
    stripManagedFields: true
";

/// A resource that is cached. In the file it is a name, or a mapping.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(in crate::config) enum CachedResource {
    /// All objects of the resource are cached from the start.
    Named(String),
    /// The resource is cached according to the rule.
    Rule(Box<RuleSettings>),
}

/// A resource, with the objects of it that are cached, and how. In namespaces, labelSelector and
/// fieldSelector, $(NAME) is replaced by the environment variable NAME, as in the arguments of a
/// container; $$ is a dollar sign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(rename = "CachedResource")]
pub(in crate::config) struct RuleSettings {
    /// Name of the resource, such as pods or deployments.apps. All its versions have the rule.
    pub(in crate::config) resource: String,
    /// Cache only objects of these namespaces. Reads of others are forwarded. Default: all
    /// namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::config) namespaces: Vec<String>,
    /// Cache only objects with these labels, such as app=web. Reads that may select others are
    /// forwarded. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) label_selector: Option<String>,
    /// Cache only objects with these fields, such as spec.nodeName=$(NODE_NAME). Reads that may
    /// select others are forwarded. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) field_selector: Option<String>,
    /// Cache the resource at its first LIST or WATCH instead of from the start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::config) on_demand: bool,
    /// How fresh a "most recent" answer must be: strict, session, bounded:5s or any.
    /// Default: as cache.freshness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) freshness: Option<FreshnessRule>,
    /// Keep the resource's events at least this long, memory permitting. Default: as
    /// cache.retentionAge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) retention_age: Option<Period>,
    /// The most memory for the events of each cache of the resource. Default: as
    /// cache.retentionBytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) retention_bytes: Option<ByteSize>,
    /// As cache.stripManagedFields, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) strip_managed_fields: Option<bool>,
}

/// Returns the keys of a mapping.
pub(in crate::config) fn keys() -> Vec<String> {
    let schema = schemars::schema_for!(RuleSettings);
    let properties = schema.get("properties").and_then(|found| found.as_object());
    properties
        .into_iter()
        .flat_map(|keys| keys.keys().cloned())
        .collect()
}

// === impl CachedResource ===

impl CachedResource {
    /// Returns the freshness that the resource's rule has.
    pub(in crate::config) fn freshness(&self) -> Option<&FreshnessRule> {
        match self {
            Self::Named(_) => None,
            Self::Rule(rule) => rule.freshness.as_ref(),
        }
    }

    /// Returns the name of the resource.
    pub(in crate::config) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Rule(rule) => &rule.resource,
        }
    }

    /// Returns true if the resource is cached before a client asks for it.
    pub(in crate::config) fn is_from_start(&self) -> bool {
        match self {
            Self::Named(_) => true,
            Self::Rule(rule) => !rule.on_demand,
        }
    }
}

impl<'de> Deserialize<'de> for CachedResource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

impl JsonSchema for CachedResource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CachedResourceEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let rule = generator.subschema_for::<RuleSettings>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, rule] })
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = CachedResource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or keys such as resource and namespaces")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<CachedResource, E> {
        Ok(CachedResource::Named(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CachedResource, A::Error> {
        let rule = RuleSettings::deserialize(MapAccessDeserializer::new(map))?;
        Ok(CachedResource::Rule(Box::new(rule)))
    }
}
