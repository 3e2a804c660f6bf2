//! The CustomResourceDefinitions in a cache, decoded once per version.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::{ObjectKey, ResourceVersion, Selection};
use crate::cache::Snapshot;
use crate::upstream::Definition;

/// The decoded definitions by key, each with the resource version of its object.
#[derive(Default)]
pub(super) struct KnownDefinitions(HashMap<ObjectKey, (ResourceVersion, Arc<Definition>)>);

impl KnownDefinitions {
    /// Returns all definitions of `snapshot`, or `None` if one can't be decoded.
    pub(super) fn of(&mut self, snapshot: &Snapshot) -> Option<Vec<Arc<Definition>>> {
        let before = std::mem::take(&mut self.0);
        for object in snapshot.list(&Selection::default(), None) {
            let version = object.resource_version;
            let known = before.get(&object.key).filter(|known| known.0 == version);
            let definition = match known {
                Some((_, definition)) => Arc::clone(definition),
                None => match Definition::decode(&object) {
                    Ok(definition) => Arc::new(definition),
                    Err(error) => {
                        tracing::warn!(name = %object.key, %error, "cannot decode a definition");
                        return None;
                    }
                },
            };
            self.0.insert(object.key.clone(), (version, definition));
        }
        let definitions = self.0.values().map(|(_, definition)| definition);
        Some(definitions.cloned().collect())
    }
}
