//! Reads the values of settings from the file, the environment variables and the flags. Each value
//! is checked by itself, and all mistakes are reported, not only the first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::all_settings::{Setting, SettingKind};
use super::args::Given;
use super::origin::Origin;
use super::problem::Problem;
use super::settings::Settings;
use super::values::units::without_types;

/// Sets one value after the other. A value is checked by deserializing the settings with it, and by
/// its range.
pub(super) struct Reader {
    /// The defaults, which contain every key.
    pub(super) defaults: Value,
    /// The defaults, overridden by the values that were accepted so far.
    accepted: Value,
    /// The origins of values, by keys such as `listen.address`, and of parts of lists.
    pub(super) origins: BTreeMap<String, Origin>,
    problems: Vec<Problem>,
}

// === impl Reader ===

impl Reader {
    pub(super) fn new() -> Self {
        let defaults = defaults();
        Self {
            accepted: defaults.clone(),
            defaults,
            origins: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Returns the settings, and the origins of those that were set. A value that was refused has
    /// left its setting as it was.
    pub(super) fn finish(
        self,
        problems: &mut Vec<Problem>,
    ) -> (Settings, BTreeMap<String, Origin>) {
        problems.extend(self.problems);
        let settings = serde_json::from_value(self.accepted).expect("each value was checked");
        (settings, self.origins)
    }

    /// Reads a flag or a variable.
    pub(super) fn read_given(&mut self, given: &Given) {
        let (setting, origin) = (given.setting, &given.origin);
        let pointer = setting.pointer();
        let values = given.values.iter().map(|text| setting.kind.value(text));
        if setting.kind == SettingKind::List {
            let is_valid = |value: &Value| self.set(&pointer, origin, vec![value.clone()].into());
            let valid = values.filter(is_valid).collect();
            self.set(&pointer, origin, Value::Array(valid));
        } else {
            for value in values {
                self.set(&pointer, origin, value);
            }
        }
    }

    /// Sets the value of the setting at `pointer`, a JSON pointer such as `/listen/address`. If the
    /// value is wrong, reports a problem and returns false.
    pub(super) fn set(&mut self, pointer: &str, origin: &Origin, value: Value) -> bool {
        match self.try_set(pointer, value) {
            Ok(()) => {
                self.origins.insert(dotted_key(pointer), origin.clone());
                true
            }
            Err(message) => {
                self.report(pointer, origin, &message);
                false
            }
        }
    }

    /// Sets the value if its type and range are right. Otherwise returns what is wrong.
    pub(super) fn try_set(&mut self, pointer: &str, value: Value) -> Result<(), String> {
        let mut candidate = self.accepted.clone();
        if let Some(setting) = candidate.pointer_mut(pointer) {
            *setting = value.clone();
        }
        let settings = serde_json::from_value::<Settings>(candidate.clone());
        settings.map_err(|error| without_types(&error.to_string()))?;
        if let Some(setting) = Setting::find(&dotted_key(pointer))
            && let Some(range) = setting.range.as_ref()
            && !range.contains(&value)
        {
            return Err(format!("must be {}", range.text));
        }
        self.accepted = candidate;
        Ok(())
    }

    /// Reports a mistake in the value at `pointer`, or in what `origin` contains.
    pub(super) fn report(&mut self, pointer: &str, origin: &Origin, message: &str) {
        let key = dotted_key(pointer);
        self.problems
            .push(Problem::new(origin.clone(), &key, message));
    }
}

/// Returns the default settings as JSON, with every key.
pub(super) fn defaults() -> Value {
    serde_json::to_value(Settings::default()).expect("the defaults are text and numbers")
}

/// Converts a JSON pointer such as `/listen/address` to a key such as `listen.address`.
pub(super) fn dotted_key(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}
