//! Reads the configuration file and reports all of its mistakes, not only the first.

mod node;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kubefan_core::upstream::closest;
use node::{Node, SpannedNode};
use serde_json::Value;

use super::problem::{Location, Position, Problem};
use super::settings::Settings;
use super::values::cached_resource;
use super::values::units::without_types;

/// Keys of earlier versions, with their current names.
const RENAMED: [(&str, &str); 1] = [("listen.insecure", "listen.insecureExposeToNetwork")];

/// A configuration file that was read: its values, and the defaults for all other settings.
#[derive(Debug)]
pub(super) struct File {
    pub(super) settings: Settings,
    /// The keys that the file sets, such as `listen.address`, with the positions of their values.
    pub(super) positions: BTreeMap<String, Option<Position>>,
}

/// Reads a file. For a value with a mistake, uses the default and adds a problem to `problems`.
pub(super) fn read(path: &Path, problems: &mut Vec<Problem>) -> File {
    let mut reader = FileReader::new(path);
    match fs::read_to_string(path) {
        Ok(text) => reader.read_document(&text),
        Err(error) => reader.report(None, format!("cannot be read: {error}")),
    }
    let mut file = reader.finish(problems);
    let location = |key: &str, file: &File| Location::File {
        path: path.to_owned(),
        position: file.positions.get(key).copied().flatten(),
    };
    let tilde_keys: Vec<_> = file
        .settings
        .paths()
        .into_iter()
        .filter(|(_, path)| path.as_ref().is_some_and(|path| path.starts_with("~")))
        .map(|(key, _)| key)
        .collect();
    problems.extend(tilde_keys.into_iter().map(|key| Problem {
        location: location(key, &file),
        message: format!("{key}: ~ is not expanded; write the home directory in full"),
    }));
    if let Some(directory) = path.parent() {
        file.settings.resolve(directory);
    }
    file
}

/// Reads a file, one value after the other. Keys are checked against the defaults, because these
/// contain every key. A value is checked by deserializing the settings with it.
struct FileReader<'a> {
    path: &'a Path,
    defaults: Value,
    /// The defaults, overridden by the values that were accepted so far.
    accepted: Value,
    positions: BTreeMap<String, Option<Position>>,
    problems: Vec<Problem>,
}

// === impl FileReader ===

impl<'a> FileReader<'a> {
    fn new(path: &'a Path) -> Self {
        let defaults = defaults();
        Self {
            path,
            accepted: defaults.clone(),
            defaults,
            positions: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    fn finish(self, problems: &mut Vec<Problem>) -> File {
        problems.extend(self.problems);
        File {
            settings: serde_json::from_value(self.accepted).expect("each value was checked"),
            positions: self.positions,
        }
    }

    fn read_document(&mut self, text: &str) {
        match node::parse(text) {
            Ok(root) => self.read_node("", &root),
            Err((position, message)) => self.report(position, message),
        }
    }

    /// Reads the value of the setting at `pointer`, a JSON pointer such as `/listen/address`.
    fn read_node(&mut self, pointer: &str, node: &SpannedNode) {
        let position = node::position_of(node);
        let known = self.defaults.pointer(pointer).cloned().unwrap_or_default();
        match (known, &node.value) {
            // A key without a value has the default.
            (_, Node::Scalar(Value::Null)) => {}
            (Value::Object(known), Node::Mapping(entries)) => {
                let known: Vec<_> = known.keys().map(String::as_str).collect();
                self.read_entries(pointer, &known, entries);
            }
            (Value::Object(_), _) => self.report_at(pointer, position, "expected keys with values"),
            (Value::Array(_), Node::Sequence(elements)) => {
                self.read_elements(pointer, position, elements)
            }
            (_, scalar) => {
                if self.set(pointer, position, scalar.to_value()) {
                    self.positions.insert(dotted_key(pointer), position);
                }
            }
        }
    }

    fn read_entries(
        &mut self,
        pointer: &str,
        known: &[&str],
        entries: &[(SpannedNode, SpannedNode)],
    ) {
        let mut seen: BTreeMap<String, Option<Position>> = BTreeMap::new();
        for (key, value) in entries {
            let (position, key) = (node::position_of(key), key.value.to_key());
            let below = format!("{pointer}/{key}");
            if let Some(first) = seen.get(&key) {
                let message = given_twice(*first);
                self.report_at(&below, position, &message);
                continue;
            }
            if known.contains(&key.as_str()) {
                self.read_node(&below, value);
            } else {
                let renamed = RENAMED.iter().find(|(old, _)| *old == dotted_key(&below));
                let message = match renamed {
                    Some((_, new)) => format!("was renamed; write {new}"),
                    None => unknown_key(&self.defaults, &key, known),
                };
                self.report_at(&below, position, &message);
            }
            seen.insert(key, position);
        }
    }

    fn read_elements(
        &mut self,
        pointer: &str,
        position: Option<Position>,
        elements: &[SpannedNode],
    ) {
        let mut valid = Vec::new();
        for element in elements {
            // The position in the settings, which do not contain the elements with mistakes.
            let index = valid.len();
            let place = node::position_of(element);
            self.positions
                .insert(format!("{}.{index}", dotted_key(pointer)), place);
            if let Node::Mapping(entries) = &element.value {
                let index = (pointer, index);
                valid.extend(self.read_mapping(index, place, entries));
                continue;
            }
            let value = element.value.to_value();
            let alone = Value::Array(vec![value.clone()]);
            if self.set(pointer, node::position_of(element), alone) {
                valid.push(value);
            }
        }
        self.set(pointer, position, Value::Array(valid));
        self.positions.insert(dotted_key(pointer), position);
    }

    /// Reads the element `index` of the list at `pointer`. The element has keys, and each of its
    /// values is checked together with the resource's name, which is required. Returns `None` if
    /// the name is not valid.
    fn read_mapping(
        &mut self,
        (pointer, index): (&str, usize),
        position: Option<Position>,
        entries: &[(SpannedNode, SpannedNode)],
    ) -> Option<Value> {
        let keys = cached_resource::keys();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let name = entries
            .iter()
            .find(|(key, _)| key.value.to_key() == "resource");
        let name = name.map(|(key, value)| (key.value.to_key(), value.value.to_value()));
        let mut valid: serde_json::Map<_, _> = name.into_iter().collect();
        if !self.set_element(pointer, pointer, position, &valid) {
            return None;
        }
        let mut seen: BTreeMap<String, Option<Position>> = BTreeMap::new();
        for (key, value) in entries {
            let (place, key) = (node::position_of(key), key.value.to_key());
            let key_below = format!("{pointer}/{key}");
            if let Some(first) = seen.insert(key.clone(), place) {
                self.report_at(&key_below, place, &given_twice(first));
            } else if !keys.contains(&key.as_str()) {
                let message = unknown_key(&self.defaults, &key, &keys);
                self.report_at(&key_below, place, &message);
            } else {
                let place = node::position_of(value);
                let below = format!("{}.{index}.{key}", dotted_key(pointer));
                self.positions.insert(below, place);
                let mut candidate = valid.clone();
                candidate.insert(key, value.value.to_value());
                if self.set_element(pointer, &key_below, place, &candidate) {
                    valid = candidate;
                }
            }
        }
        Some(valid.into())
    }

    /// Sets the list at `pointer` to the only element `keys`, if its type is right. Otherwise
    /// reports a problem with `place` and returns false.
    fn set_element(
        &mut self,
        pointer: &str,
        place: &str,
        position: Option<Position>,
        keys: &serde_json::Map<String, Value>,
    ) -> bool {
        let alone = Value::Array(vec![keys.clone().into()]);
        let set = self.try_set(pointer, alone);
        set.map_err(|message| self.report_at(place, position, &message))
            .is_ok()
    }

    /// Sets the value if its type is right. Otherwise reports a problem and returns false.
    fn set(&mut self, pointer: &str, position: Option<Position>, value: Value) -> bool {
        let set = self.try_set(pointer, value);
        set.map_err(|message| self.report_at(pointer, position, &message))
            .is_ok()
    }

    /// Sets the value if its type is right. Otherwise returns what is wrong.
    fn try_set(&mut self, pointer: &str, value: Value) -> Result<(), String> {
        let mut candidate = self.accepted.clone();
        if let Some(setting) = candidate.pointer_mut(pointer) {
            *setting = value;
        }
        let settings = serde_json::from_value::<Settings>(candidate.clone());
        settings.map_err(|error| without_types(&error.to_string()))?;
        self.accepted = candidate;
        Ok(())
    }

    fn report_at(&mut self, pointer: &str, position: Option<Position>, message: &str) {
        match pointer {
            "" => self.report(position, message.to_owned()),
            pointer => self.report(position, format!("{}: {message}", dotted_key(pointer))),
        }
    }

    fn report(&mut self, position: Option<Position>, message: String) {
        let path = self.path.to_owned();
        let location = Location::File { path, position };
        self.problems.push(Problem { location, message });
    }
}

/// Returns the default settings as JSON, with every key.
pub(super) fn defaults() -> Value {
    serde_json::to_value(Settings::default()).expect("the defaults are text and numbers")
}

/// Converts a JSON pointer such as `/listen/address` to a key such as `listen.address`.
fn dotted_key(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// Returns the message for a key that was already given, at `first`.
fn given_twice(first: Option<Position>) -> String {
    let line = first.map_or(0, |first| first.line);
    format!("given twice, first on line {line}")
}

/// Returns the message for an unknown key. It suggests similar keys, first among `known` (the keys
/// that are valid at this place), then among all keys. If there are no similar keys, it lists
/// `known`.
fn unknown_key(defaults: &Value, key: &str, known: &[&str]) -> String {
    let here = known
        .iter()
        .map(|known| ((*known).to_owned(), (*known).to_owned()));
    let mut suggestions = closest(key, here);
    if suggestions.is_empty() {
        let mut keys = Vec::new();
        keys_below(defaults, "", &mut keys);
        let last = |key: &String| key.rsplit('.').next().unwrap_or_default().to_owned();
        suggestions = closest(key, keys.into_iter().map(|key| (last(&key), key)));
    }
    match suggestions.is_empty() {
        true => format!("unknown key, expected one of {}", known.join(", ")),
        false => format!("unknown key, did you mean {}?", suggestions.join(" or ")),
    }
}

/// Appends all keys below `value` to `keys`, as in `listen.tls.certFile`, sections included.
pub(super) fn keys_below(value: &Value, prefix: &str, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let key = format!("{prefix}{key}");
        keys_below(value, &format!("{key}."), keys);
        keys.push(key);
    }
}
