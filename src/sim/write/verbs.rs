//! Create, update, delete: the rules that all kinds share.

use serde_json::Value;
use serde_json::json;
use uuid::Uuid;

use crate::api::EventType;
use crate::api::Resource;
use crate::api::Selection;
use crate::api::Status;
use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::kinds::custom;
use crate::sim::metadata;
use crate::sim::refusal;
use crate::sim::store::State;
use crate::sim::store::Target;
use crate::sim::store::WriteOptions;

use super::defaults;

/// Which part of an object an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
    /// Both: what no client can do.
    Whole,
}

/// What a DELETE says beside what is to be deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl State {
    /// Creates an object in `target`, which has no name.
    ///
    /// # Errors
    ///
    /// 400, 404, 409 or 422, as the API server has them.
    pub(crate) fn create(
        &mut self,
        target: &Target,
        mut object: Value,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        check_type(&kind.resource, &mut object)?;
        check_namespace(target, &mut object)?;
        let name = name_for(&kind.resource, &mut object)?;
        metadata::check_name(&kind.resource, &name)?;
        if !metadata::text(&object, "resourceVersion").is_empty() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::bad_request(message));
        }
        self.check_namespace_exists(target)?;
        let target = Target {
            name,
            ..target.clone()
        };
        if self.current(&target).is_ok() {
            return Err(refusal::already_exists(&target.gvr, &target.name));
        }
        if kind.has_status
            && !options.keep_status
            && let Some(members) = object.as_object_mut()
        {
            members.shift_remove("status");
        }
        let fields = metadata::of(&mut object)?;
        for key in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            fields.shift_remove(key);
        }
        if !options.keep_status || !fields.contains_key("uid") {
            fields.insert("uid".to_owned(), Uuid::new_v4().to_string().into());
        }
        if !options.keep_status || !fields.contains_key("creationTimestamp") {
            fields.insert("creationTimestamp".to_owned(), metadata::now().into());
        }
        defaults::fill(&kind, &mut object);
        if target.gvr == kinds::definitions() && custom::kind(&object).is_none() {
            let why = "Required value: group, scope, names and one stored version";
            return Err(refusal::invalid(&kind.resource, &target.name, "spec", why));
        }
        if counts_generations(&kind) {
            metadata::of(&mut object)?.insert("generation".to_owned(), 1.into());
        }
        self.commit(&target.gvr, EventType::Added, object, options)
    }

    /// Replaces `part` of the object `target`.
    ///
    /// # Errors
    ///
    /// 400, 404, 409, as the API server has them.
    pub(crate) fn update(
        &mut self,
        target: &Target,
        mut object: Value,
        part: Part,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        check_type(&kind.resource, &mut object)?;
        check_namespace(target, &mut object)?;
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
        let (uid, found) = (
            metadata::text(&object, "uid"),
            metadata::text(&current, "uid"),
        );
        if !uid.is_empty() && uid != found {
            return Err(refusal::precondition(
                &target.gvr,
                &target.name,
                "UID",
                uid,
                found,
            ));
        }
        let updated = merged(&kind, &current, object, part)?;
        if updated == metadata::in_order(current, kind.is_custom) {
            // Nothing changed: nothing happens, and nobody is told.
            return Ok(updated);
        }
        let is_gone =
            !metadata::text(&updated, "deletionTimestamp").is_empty() && !has_finalizers(&updated);
        let event_type = match is_gone {
            true => EventType::Deleted,
            false => EventType::Modified,
        };
        self.commit(&target.gvr, event_type, updated, options)
    }

    /// Stores `object` as it stands, whatever was there; only its version is the store's.
    ///
    /// # Errors
    ///
    /// 404 for a kind that isn't served, 400 for what is no object.
    pub(crate) fn put(&mut self, target: &Target, object: Value) -> Result<(), Status> {
        self.kind(target)?;
        let event_type = match self.current(target) {
            Ok(_) => EventType::Modified,
            Err(_) => EventType::Added,
        };
        let options = WriteOptions::default();
        self.commit(&target.gvr, event_type, object, options)
            .map(|_| ())
    }

    /// Deletes `target`, or marks it as going where finalizers hold it.
    ///
    /// # Errors
    ///
    /// 404, or 409 when a precondition doesn't hold.
    pub(crate) fn delete(
        &mut self,
        target: &Target,
        preconditions: &Preconditions,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let kind = self.kind(target)?;
        let mut object = self.current(target)?;
        preconditions.check(target, &object)?;
        if has_finalizers(&object) {
            if !metadata::text(&object, "deletionTimestamp").is_empty() {
                return Ok(object);
            }
            let fields = metadata::of(&mut object)?;
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
        Ok(match tells_deleted(&kind) {
            true => deleted,
            false => success(target, metadata::text(&deleted, "uid")),
        })
    }

    /// Deletes what `selection` selects, and gives it as a list.
    ///
    /// # Errors
    ///
    /// 404.
    pub(crate) fn delete_collection(
        &mut self,
        target: &Target,
        selection: &Selection,
        options: WriteOptions,
    ) -> Result<Value, Status> {
        let collection = self.collections.get(&target.gvr);
        let collection = collection.ok_or_else(Status::path_not_found)?;
        let kind = collection.served.kind.clone();
        let mut items = Vec::new();
        for key in collection.keys(selection) {
            let target = target.named(&key);
            items.push(self.current(&target)?);
            self.delete(&target, &Preconditions::default(), options)?;
        }
        Ok(json!({
            "kind": format!("{}List", kind.resource.kind),
            "apiVersion": target.gvr.api_version(),
            "metadata": {"resourceVersion": self.revision().to_string()},
            "items": items,
        }))
    }

    fn check_namespace_exists(&self, target: &Target) -> Result<(), Status> {
        let Some(namespace) = &target.namespace else {
            return Ok(());
        };
        let namespace = Target {
            name: namespace.clone(),
            ..Target::collection(kinds::namespaces(), None)
        };
        self.current(&namespace).map(|_| ())
    }

    fn empty_namespace(&mut self, name: &str, options: WriteOptions) -> Result<(), Status> {
        let namespaced = self.collections.values();
        let namespaced = namespaced.filter(|c| c.served.kind.resource.namespaced);
        let all: Vec<_> = namespaced
            .map(|collection| collection.served.kind.resource.gvr.clone())
            .collect();
        let selection = Selection {
            namespace: Some(name.to_owned()),
            ..Selection::default()
        };
        for gvr in all {
            let target = Target::collection(gvr, Some(name));
            self.delete_collection(&target, &selection, options)?;
        }
        Ok(())
    }

    fn delete_custom(&mut self, definition: &Value, options: WriteOptions) -> Result<(), Status> {
        let Some(kind) = custom::kind(definition) else {
            return Ok(());
        };
        let target = Target::collection(kind.resource.gvr.clone(), None);
        self.delete_collection(&target, &Selection::default(), options)?;
        Ok(())
    }
}

impl Preconditions {
    fn check(&self, target: &Target, object: &Value) -> Result<(), Status> {
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

/// The object as it is stored: `object`, but for what a client can't change in `part`.
fn merged(kind: &Kind, current: &Value, mut object: Value, part: Part) -> Result<Value, Status> {
    let status = match part {
        Part::Main if kind.has_status => current.get("status").cloned(),
        _ => object.get("status").cloned(),
    };
    if part == Part::Status {
        object = current.clone();
    }
    let is_changed = |key: &&String| !matches!(key.as_str(), "metadata" | "status");
    let content = |value: &Value| -> Vec<(String, Value)> {
        let mut members: Vec<_> = value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| is_changed(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        members.sort_by(|a, b| a.0.cmp(&b.0));
        members
    };
    // Of an EndpointSlice the labels count too.
    let labels = |value: &Value| value["metadata"]["labels"].clone();
    let is_relabelled = kind.resource.kind == "EndpointSlice" && labels(current) != labels(&object);
    let is_new_generation =
        counts_generations(kind) && (is_relabelled || content(current) != content(&object));
    let generation = current["metadata"]["generation"].as_u64();
    let kept = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
    ];
    let fields = metadata::of(&mut object)?;
    for key in kept {
        match current["metadata"].get(key) {
            Some(value) => fields.insert(key.to_owned(), value.clone()),
            None => fields.shift_remove(key),
        };
    }
    if is_new_generation && let Some(generation) = generation {
        fields.insert("generation".to_owned(), (generation + 1).into());
    }
    if let Some(members) = object.as_object_mut() {
        match status {
            Some(status) => members.insert("status".to_owned(), status),
            None => members.shift_remove("status"),
        };
    }
    Ok(metadata::in_order(object, kind.is_custom))
}

/// Fills in the kind, or finds fault with it.
fn check_type(resource: &Resource, object: &mut Value) -> Result<(), Status> {
    let Some(members) = object.as_object_mut() else {
        return Err(Status::bad_request("the body is no object"));
    };
    let expected = [
        ("kind", resource.kind.clone()),
        ("apiVersion", resource.gvr.api_version()),
    ];
    for (key, expected) in expected {
        let given = members
            .entry(key)
            .or_insert_with(|| expected.clone().into());
        if given.as_str() != Some(expected.as_str()) {
            let given = given.as_str().unwrap_or_default();
            return Err(Status::bad_request(format!(
                "the {key} in the data ({given}) does not match the expected {key} ({expected})"
            )));
        }
    }
    Ok(())
}

fn check_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let fields = metadata::of(object)?;
    let Some(namespace) = &target.namespace else {
        fields.shift_remove("namespace");
        return Ok(());
    };
    let given = fields
        .entry("namespace")
        .or_insert_with(|| namespace.clone().into());
    if given.as_str() == Some("") {
        *given = namespace.clone().into();
    }
    match given.as_str() == Some(namespace) {
        true => Ok(()),
        false => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

/// The name given, or one that is generated.
fn name_for(resource: &Resource, object: &mut Value) -> Result<String, Status> {
    let name = metadata::text(object, "name").to_owned();
    if !name.is_empty() {
        return Ok(name);
    }
    let prefix = metadata::text(object, "generateName").to_owned();
    if prefix.is_empty() {
        let why = "Required value: name or generateName is required";
        return Err(refusal::invalid(resource, "", "metadata.name", why));
    }
    let name = metadata::generated_name(&prefix);
    metadata::of(object)?.insert("name".to_owned(), name.clone().into());
    Ok(name)
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn counts_generations(kind: &Kind) -> bool {
    let uncounted = ["Namespace", "Node", "Service", "PersistentVolumeClaim"];
    let is_counted = !uncounted.contains(&kind.resource.kind.as_str());
    kind.is_custom || (kind.has_status && is_counted) || kind.resource.kind == "EndpointSlice"
}

/// Kinds whose DELETE answers with the object.
fn tells_deleted(kind: &Kind) -> bool {
    let kinds = ["Pod", "Service", "ServiceAccount", "PersistentVolumeClaim"];
    !kind.is_custom && kinds.contains(&kind.resource.kind.as_str())
}

fn success(target: &Target, uid: &str) -> Value {
    let mut details = json!({"name": target.name, "kind": target.gvr.resource, "uid": uid});
    if !target.gvr.group.is_empty() {
        details["group"] = target.gvr.group.clone().into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
