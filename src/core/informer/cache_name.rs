//! CacheName: what distinguishes a cache from others, as plain values.

use std::fmt;

use super::{Informer, ObjectContent};
use crate::api::{GroupVersionResource, WireFormat};
use crate::upstream::Scope;

/// The resource, format and scope of a cache, for people and programs that observe kubefan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheName {
    /// The resource of the objects.
    pub resource: GroupVersionResource,
    /// The wire format of the objects.
    pub format: WireFormat,
    /// The part of each object that the cache has.
    pub content: ObjectContent,
    /// Which objects the cache has.
    pub scope: Scope,
}

impl CacheName {
    /// Returns the name of the cache of `informer`.
    pub fn of(informer: &Informer) -> Self {
        Self {
            resource: informer.resource().gvr.clone(),
            format: informer.format(),
            content: informer.content(),
            scope: informer.upstream_scope(),
        }
    }
}

impl fmt::Display for CacheName {
    /// Prints the name, such as `pods.v1 json` or `pods.v1 json in NAMESPACE, labels app=web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.format.name())?;
        let scope = self.scope.to_string();
        if scope.is_empty() {
            return Ok(());
        }
        write!(f, " {scope}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_scope_if_there_is_one() {
        let all = CacheName {
            resource: GroupVersionResource::new("apps", "v1", "deployments"),
            format: WireFormat::Json,
            content: ObjectContent::Whole,
            scope: Scope::default(),
        };
        let resource = all.resource.to_string();
        assert_eq!(all.to_string(), format!("{resource} json"));
        let scope = Scope {
            namespace: Some("shop".to_owned()),
            ..Scope::default()
        };
        let part = CacheName { scope, ..all };
        assert_eq!(part.to_string(), format!("{resource} json in shop"));
    }
}
