//! Reads the configuration file. The position of each value is its origin.

mod node;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kubefan_core::upstream::closest;
use node::{Node, SpannedNode};
use serde_json::Value;

use super::all_settings::Setting;
use super::origin::Origin;
use super::reader::{Reader, dotted_key};
use super::values::cached_resource;

/// Keys of earlier versions, with their current names.
const RENAMED: [(&str, &str); 1] = [("listen.insecure", "listen.insecureExposeToNetwork")];

/// Reads a file. A value with a mistake is reported, and not set, except a path that cannot be
/// resolved.
pub(super) fn read(path: &Path, reader: &mut Reader) {
    let parsed = match fs::read_to_string(path) {
        Ok(text) => node::parse(&text),
        Err(error) => Err((None, format!("cannot be read: {error}"))),
    };
    match parsed {
        Ok(root) => FileReader { path, reader }.read_node("", &root),
        Err((position, message)) => {
            reader.report("", &Origin::File(path.to_owned(), position), &message);
        }
    }
}

/// Reads a file, one value after the other. Keys are checked against the defaults, because these
/// contain every key.
struct FileReader<'a> {
    path: &'a Path,
    reader: &'a mut Reader,
}

// === impl FileReader ===

impl FileReader<'_> {
    fn origin_of(&self, node: &SpannedNode) -> Origin {
        Origin::File(self.path.to_owned(), node::position_of(node))
    }

    /// Reads the value of the setting at `pointer`, a JSON pointer such as `/listen/address`.
    fn read_node(&mut self, pointer: &str, node: &SpannedNode) {
        let origin = self.origin_of(node);
        let known = self.reader.defaults.pointer(pointer).cloned();
        match (known.unwrap_or_default(), &node.value) {
            // A key without a value has the default.
            (_, Node::Scalar(Value::Null)) => {}
            (Value::Object(known), Node::Mapping(entries)) => {
                let known: Vec<_> = known.keys().map(String::as_str).collect();
                for (key, value) in self.known_entries(pointer, &known, entries) {
                    self.read_node(&format!("{pointer}/{key}"), value);
                }
            }
            (Value::Object(_), _) => {
                self.reader
                    .report(pointer, &origin, "expected keys with values");
            }
            (Value::Array(_), Node::Sequence(elements)) => {
                self.read_elements(pointer, &origin, elements);
            }
            (_, scalar) => match self.resolved(pointer, scalar.to_value()) {
                Ok(value) => {
                    self.reader.set(pointer, &origin, value);
                }
                Err(message) => {
                    self.reader.report(pointer, &origin, message);
                    // Otherwise settings that need this one would be reported, too.
                    self.reader.set(pointer, &origin, scalar.to_value());
                }
            },
        }
    }

    /// Resolves a relative path against the file's directory. Other values stay as they are.
    fn resolved(&self, pointer: &str, value: Value) -> Result<Value, &'static str> {
        let is_path = Setting::find(&dotted_key(pointer)).is_some_and(Setting::is_path);
        let text = match &value {
            // `-` is standard output.
            Value::String(text) if is_path && text != "-" => Path::new(text),
            _ => return Ok(value),
        };
        if text.starts_with("~") {
            return Err("~ is not expanded; write the home directory in full");
        }
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let path = directory.join(text).into_os_string().into_string();
        let path = path.map_err(|_| "is relative to a directory whose path is not UTF-8");
        path.map(Value::String)
    }

    /// Returns the keys in `entries` that are among `known`, with their values. Reports all other
    /// keys, and those that are given twice.
    fn known_entries<'n>(
        &mut self,
        pointer: &str,
        known: &[&str],
        entries: &'n [(SpannedNode, SpannedNode)],
    ) -> Vec<(String, &'n SpannedNode)> {
        let mut found = Vec::new();
        let mut seen = BTreeMap::new();
        for (key, value) in entries {
            let (origin, line) = (self.origin_of(key), line_of(key));
            let key = key.value.to_key();
            let below = format!("{pointer}/{key}");
            if let Some(first) = seen.get(&key) {
                let message = format!("given twice, first on line {first}");
                self.reader.report(&below, &origin, &message);
                continue;
            }
            if known.contains(&key.as_str()) {
                found.push((key.clone(), value));
            } else {
                let renamed = RENAMED.iter().find(|(old, _)| *old == dotted_key(&below));
                let message = match renamed {
                    Some((_, new)) => format!("was renamed; write {new}"),
                    None => unknown_key(&self.reader.defaults, &key, known),
                };
                self.reader.report(&below, &origin, &message);
            }
            seen.insert(key, line);
        }
        found
    }

    fn read_elements(&mut self, pointer: &str, origin: &Origin, elements: &[SpannedNode]) {
        let mut valid = Vec::new();
        for element in elements {
            // The index in the settings, which do not contain the elements with mistakes.
            let index = valid.len();
            let place = self.origin_of(element);
            let key = format!("{}.{index}", dotted_key(pointer));
            self.reader.origins.insert(key, place.clone());
            if let Node::Mapping(entries) = &element.value {
                valid.extend(self.read_mapping((pointer, index), &place, entries));
                continue;
            }
            let value = element.value.to_value();
            let alone = Value::Array(vec![value.clone()]);
            if self.reader.set(pointer, &place, alone) {
                valid.push(value);
            }
        }
        self.reader.set(pointer, origin, Value::Array(valid));
    }

    /// Reads the element `index` of the list at `pointer`. The element has keys, and each of its
    /// values is checked together with the resource's name, which is required. Returns `None` if
    /// the name is not valid.
    fn read_mapping(
        &mut self,
        (pointer, index): (&str, usize),
        origin: &Origin,
        entries: &[(SpannedNode, SpannedNode)],
    ) -> Option<Value> {
        let keys = cached_resource::keys();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let name = entries
            .iter()
            .find(|(key, _)| key.value.to_key() == "resource");
        let name = name.map(|(key, value)| (key.value.to_key(), value.value.to_value()));
        let mut valid: serde_json::Map<_, _> = name.into_iter().collect();
        if !self.set_element(pointer, pointer, origin, &valid) {
            return None;
        }
        for (key, value) in self.known_entries(pointer, &keys, entries) {
            let key_below = format!("{pointer}/{key}");
            let place = self.origin_of(value);
            let below = format!("{}.{index}.{key}", dotted_key(pointer));
            self.reader.origins.insert(below, place.clone());
            let mut candidate = valid.clone();
            candidate.insert(key, value.value.to_value());
            if self.set_element(pointer, &key_below, &place, &candidate) {
                valid = candidate;
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
        origin: &Origin,
        keys: &serde_json::Map<String, Value>,
    ) -> bool {
        let alone = Value::Array(vec![keys.clone().into()]);
        let set = self.reader.try_set(pointer, alone);
        set.map_err(|message| self.reader.report(place, origin, &message))
            .is_ok()
    }
}

/// Returns the line where a node begins; 0 if the parser reports none.
fn line_of(node: &SpannedNode) -> u64 {
    node::position_of(node).map_or(0, |position| position.line)
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
    if suggestions.is_empty() {
        format!("unknown key, expected one of {}", known.join(", "))
    } else {
        format!("unknown key, did you mean {}?", suggestions.join(" or "))
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
