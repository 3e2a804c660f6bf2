//! Strategic merge patches, which merge some lists by key and contain directives.

use kubefan_core::api::{Resource, Status};
use serde_json::{Map, Value};

use crate::sim::kinds;

/// How a patch changes a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// The list is a map, keyed by this member of its items.
    Keyed(&'static str),
    /// The list is a set; a patch adds items.
    Set,
    /// The list is one value; a patch replaces it.
    Atomic,
}

/// The lists that a patch merges; it replaces all others. Each row has the field that contains the
/// list (empty for the object itself), the list's name, and the key of its items (empty for sets).
const LIST_STRATEGIES: &[(&str, &str, &str)] = &[
    ("", "secrets", "name"),
    ("metadata", "finalizers", ""),
    ("metadata", "ownerReferences", "uid"),
    ("spec", "containers", "name"),
    ("spec", "ephemeralContainers", "name"),
    ("spec", "hostAliases", "ip"),
    ("spec", "imagePullSecrets", "name"),
    ("spec", "initContainers", "name"),
    ("spec", "podCIDRs", ""),
    ("spec", "ports", "port"),
    ("spec", "resourceClaims", "name"),
    ("spec", "schedulingGates", "name"),
    ("spec", "topologySpreadConstraints", "topologyKey"),
    ("spec", "volumes", "name"),
    ("containers", "env", "name"),
    ("containers", "ports", "containerPort"),
    ("containers", "volumeDevices", "devicePath"),
    ("containers", "volumeMounts", "mountPath"),
    ("status", "addresses", "type"),
    ("status", "conditions", "type"),
    ("status", "hostIPs", "ip"),
    ("status", "podIPs", "ip"),
    ("status", "resourceClaimStatuses", "name"),
];

const ORDER_DIRECTIVE: &str = "$setElementOrder/";
const DELETE_DIRECTIVE: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into an object of `resource`.
///
/// # Errors
///
/// 400 for an unknown directive, or an item without its key.
pub(crate) fn merge(
    resource: &Resource,
    object: &mut Value,
    patch: Map<String, Value>,
) -> Result<(), Status> {
    let merger = Merger {
        // Unlike in other kinds, a patch replaces the conditions of a CustomResourceDefinition.
        is_definition: resource.gvr == kinds::definitions(),
    };
    match object {
        Value::Object(members) => merger.map(members, patch, ""),
        _ => Ok(()),
    }
}

struct Merger {
    is_definition: bool,
}

impl Merger {
    fn strategy(&self, parent: &str, list: &str) -> Strategy {
        let parent = match parent {
            "initContainers" | "ephemeralContainers" => "containers",
            other => other,
        };
        let mut lists = LIST_STRATEGIES
            .iter()
            .filter(|_| !self.is_definition || parent == "metadata");
        match lists.find(|(of, name, _)| *of == parent && *name == list) {
            None => Strategy::Atomic,
            Some((_, _, "")) => Strategy::Set,
            Some((_, _, key)) => Strategy::Keyed(key),
        }
    }

    /// Merges a patch into the map in the field `parent_field`; `parent_field` is empty for the
    /// object itself.
    fn map(
        &self,
        map: &mut Map<String, Value>,
        mut patch: Map<String, Value>,
        parent_field: &str,
    ) -> Result<(), Status> {
        let directive = patch.shift_remove("$patch");
        match directive.as_ref().and_then(Value::as_str) {
            Some("replace") => *map = without_directives(patch),
            Some("delete") => map.clear(),
            Some("merge") | None => self.members(map, patch, parent_field)?,
            Some(other) => return Err(unknown(other)),
        }
        Ok(())
    }

    fn members(
        &self,
        map: &mut Map<String, Value>,
        mut patch: Map<String, Value>,
        parent_field: &str,
    ) -> Result<(), Status> {
        if let Some(kept) = patch.shift_remove("$retainKeys") {
            let kept = items(kept);
            map.retain(|key, _| kept.iter().any(|kept| kept == key));
        }
        let before = map.clone();
        let mut element_orders = Vec::new();
        for (key, value) in patch {
            if let Some(list) = key.strip_prefix(ORDER_DIRECTIVE) {
                element_orders.push((list.to_owned(), items(value)));
            } else if let Some(list) = key.strip_prefix(DELETE_DIRECTIVE) {
                remove(map, list, &items(value));
            } else if key.starts_with('$') {
                return Err(unknown(&key));
            } else {
                self.member(map, key, value, parent_field)?;
            }
        }
        for (name, order) in element_orders {
            let strategy = self.strategy(parent_field, &name);
            if let Some(Value::Array(list)) = map.get_mut(&name) {
                let before = before.get(&name).and_then(Value::as_array);
                let before = before.map(Vec::as_slice).unwrap_or_default();
                *list = in_order(std::mem::take(list), &order, before, strategy);
            }
        }
        Ok(())
    }

    fn member(
        &self,
        map: &mut Map<String, Value>,
        key: String,
        patch: Value,
        parent_field: &str,
    ) -> Result<(), Status> {
        match (map.get_mut(&key), patch) {
            (_, Value::Null) => {
                map.shift_remove(&key);
            }
            (Some(Value::Object(members)), Value::Object(patch)) => {
                self.map(members, patch, &key)?;
            }
            (Some(Value::Array(list)), Value::Array(patch)) => {
                match self.strategy(parent_field, &key) {
                    Strategy::Keyed(by) => self.list(list, patch, &key, by)?,
                    Strategy::Set => add(list, patch),
                    Strategy::Atomic => *list = patch,
                }
            }
            (_, patch) => {
                map.insert(key, cleaned(patch));
            }
        }
        Ok(())
    }

    /// Merges a patch into the list `name`, using `by` as the key of its items.
    fn list(
        &self,
        list: &mut Vec<Value>,
        patch: Vec<Value>,
        name: &str,
        by: &str,
    ) -> Result<(), Status> {
        if patch.iter().any(|item| item["$patch"] == "replace") {
            let kept = patch.into_iter().filter(|item| item["$patch"].is_null());
            *list = kept.map(cleaned).collect();
            return Ok(());
        }
        for item in patch {
            let id = item[by].clone();
            if id.is_null() {
                let message = format!("an item of {name} has no {by}, which is the merge key");
                return Err(Status::bad_request(message));
            }
            let found = list.iter_mut().find(|known| known[by] == id);
            match (item, found) {
                (item, _) if item["$patch"] == "delete" => list.retain(|known| known[by] != id),
                (Value::Object(item), Some(Value::Object(known))) => self.map(known, item, name)?,
                (item, _) => list.push(cleaned(item)),
            }
        }
        Ok(())
    }
}

/// Adds the items that are not in the set yet.
fn add(set: &mut Vec<Value>, items: Vec<Value>) {
    for item in items {
        if !set.contains(&item) {
            set.push(item);
        }
    }
}

/// Removes the items `gone` from the list `name`, if the map has such a list.
fn remove(map: &mut Map<String, Value>, name: &str, gone: &[Value]) {
    if let Some(Value::Array(list)) = map.get_mut(name) {
        list.retain(|item| !gone.contains(item));
    }
}

/// Sorts `list` into the order that a patch gives. An item that the order does not contain is
/// placed before the first item that followed it in `before`, or else at the end.
fn in_order(list: Vec<Value>, order: &[Value], before: &[Value], strategy: Strategy) -> Vec<Value> {
    let id = |item: &Value| match strategy {
        Strategy::Keyed(by) => item[by].clone(),
        Strategy::Set | Strategy::Atomic => item.clone(),
    };
    let place_in = |all: &[Value], item: &Value| all.iter().position(|one| id(one) == id(item));
    let (mut known, unknown): (Vec<_>, Vec<_>) = list
        .into_iter()
        .partition(|item| place_in(order, item).is_some());
    known.sort_by_key(|item| place_in(order, item));
    let mut from = 0;
    for item in unknown {
        let place = place_in(before, &item);
        let follows = |other: &Value| place_in(before, other).is_some_and(|at| Some(at) > place);
        let at = known[from..].iter().position(follows);
        let at = at.map_or(known.len(), |at| from + at);
        known.insert(at, item);
        from = at + 1;
    }
    known
}

/// Removes nulls and directives from a value that the patch adds, because there is nothing that
/// they could change.
fn cleaned(value: Value) -> Value {
    match value {
        Value::Object(members) => without_directives(members).into(),
        Value::Array(items) => {
            let kept = items.into_iter().filter(|item| item["$patch"] != "delete");
            kept.map(cleaned).collect()
        }
        other => other,
    }
}

fn without_directives(members: Map<String, Value>) -> Map<String, Value> {
    let members = members.into_iter();
    let kept = members.filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    kept.map(|(key, value)| (key, cleaned(value))).collect()
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn unknown(directive: &str) -> Status {
    Status::bad_request(format!(
        "unknown directive in a strategic merge patch: {directive}"
    ))
}

#[cfg(test)]
mod tests;
