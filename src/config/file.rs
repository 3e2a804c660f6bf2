//! The configuration file: read to its end, whatever is wrong with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::upstream::closest;

use super::fault::Fault;
use super::fault::Place;
use super::fault::Position;
use super::node;
use super::node::Node;
use super::node::Placed;
use super::settings::Settings;

/// What a file says: the defaults with its values over them.
#[derive(Debug)]
pub(super) struct File {
    pub(super) settings: Settings,
    /// Keys that it sets, such as `listen.address`, and where their values stand.
    pub(super) positions: BTreeMap<String, Option<Position>>,
}

/// Reads a file; what is wrong is left out of the settings and told in `faults`.
pub(super) fn read(path: &Path, faults: &mut Vec<Fault>) -> File {
    let mut reading = Reading::new(path);
    match fs::read_to_string(path) {
        Ok(text) => reading.document(&text),
        Err(error) => reading.fault(None, format!("cannot be read: {error}")),
    }
    let mut file = reading.finish(faults);
    let place = |key: &str, file: &File| Place::File {
        path: path.to_owned(),
        position: file.positions.get(key).copied().flatten(),
    };
    let homes: Vec<_> = file
        .settings
        .paths()
        .into_iter()
        .filter(|(_, path)| path.as_ref().is_some_and(|path| path.starts_with("~")))
        .map(|(key, _)| key)
        .collect();
    faults.extend(homes.into_iter().map(|key| Fault {
        place: place(key, &file),
        problem: format!("{key}: ~ means nothing here; write the directory out"),
    }));
    if let Some(directory) = path.parent() {
        file.settings.resolve(directory);
    }
    file
}

/// A file being read. Keys are checked against the defaults, which have all of them, and values by
/// setting them, one at a time.
struct Reading<'a> {
    path: &'a Path,
    defaults: Value,
    /// The defaults with the values over them that were right so far.
    read: Value,
    positions: BTreeMap<String, Option<Position>>,
    faults: Vec<Fault>,
}

// === impl Reading ===

impl<'a> Reading<'a> {
    fn new(path: &'a Path) -> Self {
        let defaults = defaults();
        Self {
            path,
            read: defaults.clone(),
            defaults,
            positions: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    fn finish(self, faults: &mut Vec<Fault>) -> File {
        faults.extend(self.faults);
        File {
            settings: serde_json::from_value(self.read).expect("each value was tried"),
            positions: self.positions,
        }
    }

    fn document(&mut self, text: &str) {
        match node::parse(text) {
            Ok(root) => self.node("", &root),
            Err((position, problem)) => self.fault(position, problem),
        }
    }

    /// `at` is where the node's setting is, as a JSON pointer.
    fn node(&mut self, at: &str, node: &Placed) {
        let place = node::position_of(node);
        let known = self.defaults.pointer(at).cloned().unwrap_or_default();
        match (known, &node.value) {
            // A key with nothing behind it: as if it were not there.
            (_, Node::Scalar(Value::Null)) => {}
            (Value::Object(known), Node::Mapping(entries)) => {
                let known: Vec<_> = known.keys().map(String::as_str).collect();
                self.entries(at, &known, entries);
            }
            (Value::Object(_), _) => self.fault_at(at, place, "expected keys with values"),
            (Value::Array(_), Node::Sequence(elements)) => self.elements(at, place, elements),
            (_, scalar) => {
                if self.set(at, place, scalar.to_value()) {
                    self.positions.insert(dotted(at), place);
                }
            }
        }
    }

    fn entries(&mut self, at: &str, known: &[&str], entries: &[(Placed, Placed)]) {
        let mut seen: BTreeMap<String, Option<Position>> = BTreeMap::new();
        for (key, value) in entries {
            let (place, key) = (node::position_of(key), key.value.to_key());
            let below = format!("{at}/{key}");
            if let Some(first) = seen.get(&key) {
                let line = first.map_or(0, |first| first.line);
                self.fault_at(&below, place, &format!("given twice, first in line {line}"));
                continue;
            }
            if known.contains(&key.as_str()) {
                self.node(&below, value);
            } else {
                self.fault_at(&below, place, &unknown(&self.defaults, &key, known));
            }
            seen.insert(key, place);
        }
    }

    fn elements(&mut self, at: &str, place: Option<Position>, elements: &[Placed]) {
        let mut right = Vec::new();
        for element in elements {
            let value = element.value.to_value();
            let alone = Value::Array(vec![value.clone()]);
            if self.set(at, node::position_of(element), alone) {
                right.push(value);
            }
        }
        self.set(at, place, Value::Array(right));
        self.positions.insert(dotted(at), place);
    }

    /// Sets a value if its type takes it.
    fn set(&mut self, at: &str, place: Option<Position>, value: Value) -> bool {
        let mut tried = self.read.clone();
        if let Some(setting) = tried.pointer_mut(at) {
            *setting = value;
        }
        match serde_json::from_value::<Settings>(tried.clone()) {
            Ok(_) => self.read = tried,
            Err(error) => {
                self.fault_at(at, place, &error.to_string());
                return false;
            }
        }
        true
    }

    fn fault_at(&mut self, at: &str, position: Option<Position>, problem: &str) {
        match at {
            "" => self.fault(position, problem.to_owned()),
            at => self.fault(position, format!("{}: {problem}", dotted(at))),
        }
    }

    fn fault(&mut self, position: Option<Position>, problem: String) {
        let path = self.path.to_owned();
        let place = Place::File { path, position };
        self.faults.push(Fault { place, problem });
    }
}

/// The default settings, all keys included.
pub(super) fn defaults() -> Value {
    serde_json::to_value(Settings::default()).expect("the defaults are text and numbers")
}

/// `listen.address` of `/listen/address`.
fn dotted(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

/// Why a key can't be meant, with what may have been.
fn unknown(defaults: &Value, key: &str, known: &[&str]) -> String {
    let here = known
        .iter()
        .map(|known| ((*known).to_owned(), (*known).to_owned()));
    let mut meant = closest(key, here);
    if meant.is_empty() {
        let mut keys = Vec::new();
        keys_below(defaults, "", &mut keys);
        let last = |key: &String| key.rsplit('.').next().unwrap_or_default().to_owned();
        meant = closest(key, keys.into_iter().map(|key| (last(&key), key)));
    }
    match meant.is_empty() {
        true => format!("unknown key, expected one of {}", known.join(", ")),
        false => format!("unknown key, did you mean {}?", meant.join(" or ")),
    }
}

/// All keys below a value, dotted.
pub(super) fn keys_below(value: &Value, prefix: &str, keys: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let key = format!("{prefix}{key}");
        keys_below(value, &format!("{key}."), keys);
        keys.push(key);
    }
}
