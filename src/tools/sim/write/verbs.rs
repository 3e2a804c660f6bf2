//! Create, update and delete, with the rules that all kinds share.

use kubefan_core::api::{EventType, Selection, Status};
use serde_json::{Value, json};

use super::rules::ObjectPart;
use super::{defaults, rules};
use crate::sim::kinds::custom;
use crate::sim::store::{State, WriteOptions, WriteTarget};
use crate::sim::{kinds, metadata, refusal};

/// The preconditions of a DELETE; `None` if a field is not checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl State {
    /// Creates an object in the collection `target`.
    ///
    /// # Errors
    ///
    /// 400, 404, 409 or 422, as from the API server.
    pub(crate) fn create(
        &mut self,
        target: &WriteTarget,
        mut object: Value,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        rules::check_type(&kind.resource, &mut object)?;
        rules::check_namespace(target, &mut object)?;
        let name = rules::name_for(&kind.resource, &mut object)?;
        metadata::check_name(&kind.resource, &name)?;
        if !metadata::text(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::bad_request(message));
        }
        self.check_namespace_exists(target)?;
        let target = WriteTarget {
            name,
            ..target.clone()
        };
        if self.current(&target).is_ok() {
            return Err(refusal::already_exists(&target.gvr, &target.name));
        }
        rules::make_new(&kind, &mut object, options.keep_status)?;
        defaults::fill_defaults(&kind, &mut object);
        if target.gvr == kinds::definitions() && custom::kind(&object).is_none() {
            let why = "Required value: group, scope, names and one stored version";
            return Err(refusal::invalid(&kind.resource, &target.name, "spec", why));
        }
        if rules::counts_generations(&kind) {
            metadata::metadata_mut(&mut object)?.insert("generation".to_owned(), 1.into());
        }
        self.commit(&target.gvr, EventType::Added, object, options)
    }

    /// Replaces `part` of the object `target`.
    ///
    /// # Errors
    ///
    /// 400, 404 or 409, as from the API server.
    pub(crate) fn update(
        &mut self,
        target: &WriteTarget,
        mut object: Value,
        part: ObjectPart,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        rules::check_type(&kind.resource, &mut object)?;
        rules::check_namespace(target, &mut object)?;
        let current = self.current(target)?;
        let name = metadata::text(&object, "name");
        if name != target.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let version = metadata::text(&object, "resourceVersion");
        if !version.is_empty() && version != metadata::text(&current, "resourceVersion") {
            return Err(refusal::conflict(&target.gvr, &target.name));
        }
        let uid = Some(metadata::text(&object, "uid")).filter(|uid| !uid.is_empty());
        let preconditions = Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: None,
        };
        preconditions.check(target, &current)?;
        let updated = rules::merged(&kind, &current, object, part)?;
        if updated == metadata::in_order(current, kind.is_custom) {
            // An update without a change creates no event and no new version.
            return Ok(updated);
        }
        let is_gone = !metadata::text(&updated, "deletionTimestamp").is_empty()
            && !rules::has_finalizers(&updated);
        let event_type = if is_gone {
            EventType::Deleted
        } else {
            EventType::Modified
        };
        self.commit(&target.gvr, event_type, updated, options)
    }

    /// Creates or replaces an object without checks; sets only its resource version.
    ///
    /// # Errors
    ///
    /// 404 if the kind is not served, 400 if `object` is not a valid object.
    pub(crate) fn put(&mut self, target: &WriteTarget, object: Value) -> Result<(), Status> {
        self.kind(target)?;
        let event_type = match self.current(target) {
            Ok(_) => EventType::Modified,
            Err(_) => EventType::Added,
        };
        let options = WriteOptions::default();
        self.commit(&target.gvr, event_type, object, options)
            .map(|_| ())
    }

    /// Deletes the object `target`. If the object has finalizers, only
    /// sets its `deletionTimestamp`.
    ///
    /// # Errors
    ///
    /// 404 if it does not exist, 409 if a precondition does not hold.
    pub(crate) fn delete(
        &mut self,
        target: &WriteTarget,
        preconditions: &Preconditions,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        let mut object = self.current(target)?;
        preconditions.check(target, &object)?;
        if rules::has_finalizers(&object) {
            if !metadata::text(&object, "deletionTimestamp").is_empty() {
                return Ok(object);
            }
            let fields = metadata::metadata_mut(&mut object)?;
            fields.insert("deletionTimestamp".to_owned(), metadata::now().into());
            fields.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
            return self.commit(&target.gvr, EventType::Modified, object, options);
        }
        if target.gvr == kinds::namespaces() && !options.dry_run {
            self.empty_namespace(&target.name, options)?;
        }
        if target.gvr == kinds::definitions() && !options.dry_run {
            self.delete_custom(&object, options)?;
        }
        let deleted = self.commit(&target.gvr, EventType::Deleted, object, options)?;
        Ok(if rules::returns_deleted_object(&kind) {
            deleted
        } else {
            rules::success(target, metadata::text(&deleted, "uid"))
        })
    }

    /// Deletes all objects that match `selection`, and returns them as a list.
    ///
    /// # Errors
    ///
    /// 404 if the kind is not served.
    pub(crate) fn delete_collection(
        &mut self,
        target: &WriteTarget,
        selection: &Selection,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let collection = self.collections.get(&target.gvr);
        let collection = collection.ok_or_else(Status::path_not_found)?;
        let kind = collection.served_kind.kind.clone();
        let mut items = Vec::new();
        for key in collection.keys(selection) {
            let target = target.named(&key);
            items.push(self.current(&target)?);
            self.delete(&target, &Preconditions::default(), options)?;
        }
        Ok(json!({
            "kind": format!("{}List", kind.resource.kind),
            "apiVersion": target.gvr.api_version(),
            "metadata": {"resourceVersion": self.revision.to_string()},
            "items": items,
        }))
    }

    fn check_namespace_exists(&self, target: &WriteTarget) -> Result<(), Status> {
        let Some(namespace) = &target.namespace else {
            return Ok(());
        };
        let namespace = WriteTarget::new(&kinds::namespaces(), None, namespace);
        self.current(&namespace).map(|_| ())
    }

    fn empty_namespace(&mut self, name: &str, options: WriteOptions) -> Result<(), Status> {
        let namespaced = self.collections.values();
        let namespaced = namespaced.filter(|c| c.served_kind.kind.resource.namespaced);
        let all: Vec<_> = namespaced
            .map(|collection| collection.served_kind.kind.resource.gvr.clone())
            .collect();
        let selection = Selection {
            namespace: Some(name.to_owned()),
            ..Selection::default()
        };
        for gvr in all {
            let target = WriteTarget::new(&gvr, Some(name), "");
            self.delete_collection(&target, &selection, options)?;
        }
        Ok(())
    }

    fn delete_custom(&mut self, definition: &Value, options: WriteOptions) -> Result<(), Status> {
        let Some(kind) = custom::kind(definition) else {
            return Ok(());
        };
        let target = WriteTarget::new(&kind.resource.gvr, None, "");
        self.delete_collection(&target, &Selection::default(), options)?;
        Ok(())
    }
}

impl Preconditions {
    fn check(&self, target: &WriteTarget, object: &Value) -> Result<(), Status> {
        let checks = [
            ("UID", "uid", &self.uid),
            ("ResourceVersion", "resourceVersion", &self.resource_version),
        ];
        for (field, key, wanted) in checks {
            let found = metadata::text(object, key);
            if let Some(wanted) = wanted
                && wanted != found
            {
                let (gvr, name) = (&target.gvr, &target.name);
                return Err(refusal::precondition(gvr, name, field, wanted, found));
            }
        }
        Ok(())
    }
}
