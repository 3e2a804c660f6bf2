//! One result of discovery, and what is derived from it about each resource.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::{GroupVersionResource, SelectableFields};
use crate::informer::{CacheSettings, ResourceRules};
use crate::upstream::RestMapper;

/// One result of discovery.
pub(super) struct DiscoverySnapshot {
    pub(super) mapper: RestMapper,
    /// The details of each resource, filled when first needed.
    details: Mutex<HashMap<GroupVersionResource, Details>>,
}

/// What is derived from discovery about one resource.
#[derive(Clone)]
pub(super) struct Details {
    /// The minor version of the API server that `fields` belong to.
    server_minor: Option<u32>,
    pub(super) fields: Arc<SelectableFields>,
    /// The rules that `is_forbidden` and `settings` belong to.
    rules: Arc<ResourceRules>,
    pub(super) is_forbidden: bool,
    pub(super) settings: Arc<CacheSettings>,
}

// === impl DiscoverySnapshot ===

impl DiscoverySnapshot {
    pub(super) fn new(mapper: RestMapper) -> Self {
        Self {
            mapper,
            details: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the details of `gvr` at an API server of the minor version
    /// `server_minor`, with `rules`.
    pub(super) fn details_of(
        &self,
        gvr: &GroupVersionResource,
        server_minor: Option<u32>,
        rules: &Arc<ResourceRules>,
    ) -> Details {
        let mut details = self.details.lock();
        let is_current = |known: &&Details| {
            known.server_minor == server_minor && Arc::ptr_eq(&known.rules, rules)
        };
        if let Some(known) = details.get(gvr).filter(is_current) {
            return known.clone();
        }
        let fields = Arc::new(self.fields_of(gvr, server_minor));
        let settings = self.mapper.resource(gvr).map(|resource| {
            let settings = rules.settings(resource, &fields, &self.mapper);
            settings.unwrap_or_else(|error| {
                tracing::warn!(resource = %gvr, %error, "the resource's rule does not fit: nothing is cached");
                CacheSettings::nothing()
            })
        });
        let found = Details {
            server_minor,
            fields,
            rules: Arc::clone(rules),
            is_forbidden: rules.forbid(gvr, &self.mapper),
            settings: Arc::new(settings.unwrap_or_default()),
        };
        details.insert(gvr.clone(), found.clone());
        found
    }

    /// Returns true if a cache of `gvr` can continue with the discovery `after`, once it was listed
    /// again. This requires that the UID of the definition, the kinds, the scope and the selectable
    /// fields have not changed. Otherwise the watches of the cache end, as at the API server.
    pub(super) fn is_continued_by(
        &self,
        after: &Self,
        gvr: &GroupVersionResource,
        server_minor: Option<u32>,
    ) -> bool {
        let uid = |of: &Self| {
            let custom = of.mapper.custom_resource(gvr);
            custom.map(|custom| custom.uid().to_owned())
        };
        let shape = |of: &Self| {
            let resource = of.mapper.resource(gvr);
            resource.map(|resource| (resource.kind.clone(), resource.namespaced))
        };
        uid(self) == uid(after)
            && shape(self) == shape(after)
            && self.mapper.list_kind(gvr) == after.mapper.list_kind(gvr)
            && self.fields_of(gvr, server_minor) == after.fields_of(gvr, server_minor)
    }

    pub(super) fn fields_of(
        &self,
        gvr: &GroupVersionResource,
        server_minor: Option<u32>,
    ) -> SelectableFields {
        match (
            self.mapper.selectable_json_paths(gvr),
            self.mapper.resource(gvr),
        ) {
            (Some(paths), Some(resource)) => SelectableFields::custom(resource.namespaced, paths),
            (None, Some(resource)) => SelectableFields::for_resource(resource, server_minor),
            (_, None) => SelectableFields::default(),
        }
    }
}
