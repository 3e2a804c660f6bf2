//! The CustomResourceDefinitions in a cache, decoded once per version.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::{Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::Snapshot;
use crate::upstream::Definition;

/// The decoded definitions by key, each with the resource version of its object.
#[derive(Default)]
pub(super) struct KnownDefinitions(HashMap<ObjectKey, (ResourceVersion, Arc<Definition>)>);

impl KnownDefinitions {
    /// Returns all definitions of `snapshot`, or `None` if one can't be decoded.
    pub(super) fn of(&mut self, snapshot: &Snapshot) -> Option<Vec<Arc<Definition>>> {
        let mut before = Self(std::mem::take(&mut self.0));
        for object in snapshot.list(&Selection::default(), None) {
            match before.decode(&object) {
                Ok(definition) => self.remember(&object, definition),
                Err(error) => {
                    tracing::warn!(name = %object.key, %error, "cannot decode a definition");
                    return None;
                }
            }
        }
        let definitions = self.0.values().map(|(_, definition)| definition);
        Some(definitions.cloned().collect())
    }

    /// Returns the definition that `object` is.
    ///
    /// # Errors
    ///
    /// If `object` can't be decoded.
    pub(super) fn decode(&mut self, object: &Object) -> serde_json::Result<Arc<Definition>> {
        let version = object.resource_version;
        let known = self.0.get(&object.key);
        if let Some((_, definition)) = known.filter(|known| known.0 == version) {
            return Ok(Arc::clone(definition));
        }
        let definition = Arc::new(Definition::decode(object)?);
        self.remember(object, Arc::clone(&definition));
        Ok(definition)
    }

    fn remember(&mut self, object: &Object, definition: Arc<Definition>) {
        let known = (object.resource_version, definition);
        self.0.insert(object.key.clone(), known);
    }
}
