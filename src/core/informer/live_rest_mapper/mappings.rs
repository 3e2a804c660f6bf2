//! The mappings of the current discovery.

use std::sync::Arc;

use super::LiveRestMapper;
use crate::api::{GroupVersionKind, GroupVersionResource, Resource};
use crate::upstream::{MappingError, PartialResource, RestMapper};

/// A resource or kind that is not found causes a refresh of discovery in the background, as for
/// [`LiveRestMapper::informer_spec`]; a later call may find it.
impl LiveRestMapper {
    /// Calls [`RestMapper::resources_for`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::resources_for`].
    pub fn resources_for(
        &self,
        partial: &PartialResource,
    ) -> Result<Vec<GroupVersionResource>, MappingError> {
        self.map(|mapper| mapper.resources_for(partial))
    }

    /// Calls [`RestMapper::resource_for`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::resource_for`].
    pub fn resource_for(
        &self,
        partial: &PartialResource,
    ) -> Result<GroupVersionResource, MappingError> {
        self.map(|mapper| mapper.resource_for(partial))
    }

    /// Calls [`RestMapper::kinds_for`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::kinds_for`].
    pub fn kinds_for(
        &self,
        partial: &PartialResource,
    ) -> Result<Vec<GroupVersionKind>, MappingError> {
        self.map(|mapper| mapper.kinds_for(partial))
    }

    /// Calls [`RestMapper::kind_for`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::kind_for`].
    pub fn kind_for(&self, partial: &PartialResource) -> Result<GroupVersionKind, MappingError> {
        self.map(|mapper| mapper.kind_for(partial))
    }

    /// Calls [`RestMapper::rest_mappings`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::rest_mappings`].
    pub fn rest_mappings(
        &self,
        group: &str,
        kind: &str,
        versions: &[&str],
    ) -> Result<Vec<Arc<Resource>>, MappingError> {
        self.map(|mapper| mapper.rest_mappings(group, kind, versions))
    }

    /// Calls [`RestMapper::rest_mapping`] of the current mapper.
    ///
    /// # Errors
    ///
    /// As for [`RestMapper::rest_mapping`].
    pub fn rest_mapping(
        &self,
        group: &str,
        kind: &str,
        versions: &[&str],
    ) -> Result<Arc<Resource>, MappingError> {
        self.map(|mapper| mapper.rest_mapping(group, kind, versions))
    }

    fn map<T>(
        &self,
        look: impl FnOnce(&RestMapper) -> Result<T, MappingError>,
    ) -> Result<T, MappingError> {
        let found = self.with(look);
        if let Err(MappingError::NoResource(_) | MappingError::NoKind { .. }) = found {
            self.request_refresh();
        }
        found
    }
}
