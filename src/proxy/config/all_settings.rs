//! All settings as a list: what `settings` declares, read from its JSON Schema.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::settings::Settings;
use super::values::range::Range;

/// A setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// Key in the file, such as `listen.address`.
    pub(super) key: String,
    /// The heading of its section's flags.
    pub(super) heading: String,
    pub(super) flag: Flag,
    pub(super) kind: SettingKind,
    pub(super) range: Option<Range>,
    pub(super) declared: Declared,
}

/// The flag of a setting.
#[derive(Debug, Default)]
pub(super) struct Flag {
    pub(super) short: Option<char>,
    /// The name with its dashes, such as `--listen`.
    pub(super) name: String,
    /// The name of its value; `None` if it has no value and is counted.
    pub(super) value: Option<String>,
}

/// How the text of a flag or variable is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SettingKind {
    Boolean,
    Number,
    /// One of these words.
    Words(Vec<String>),
    /// Several texts.
    List,
    Text,
}

/// The part of a property's schema that declares a setting, with its attributes: see `settings`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Declared {
    pub(super) description: String,
    pub(super) default: Value,
    r#type: Value,
    /// The name of a value of the type, such as `DURATION`.
    x_value: Option<String>,
    x_flag: Option<String>,
    pub(super) x_variable: Option<String>,
    x_range: Option<String>,
    pub(super) x_live: bool,
    pub(super) x_help: bool,
    pub(super) x_page: Option<String>,
    pub(super) x_example: Option<String>,
}

/// Every setting, in the order of the file.
pub(super) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let schema = schemars::schema_for!(Settings);
    let root = schema.as_value();
    let mut settings = Vec::new();
    add_settings(root, root, "", "", &mut settings);
    settings
});

/// Adds the settings of a section and of the sections in it.
fn add_settings(
    root: &Value,
    section: &Value,
    prefix: &str,
    heading: &str,
    settings: &mut Vec<Setting>,
) {
    for (name, property) in section["properties"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{name}");
        let heading = property["x-heading"].as_str().unwrap_or(heading);
        let definition = definition(root, property);
        if definition["properties"].is_object() {
            add_settings(root, definition, &format!("{key}."), heading, settings)
        } else {
            settings.push(Setting::new(key, heading, property, definition))
        }
    }
}

/// Returns the schema of a property's type.
pub(super) fn definition<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    let references = [property, &property["anyOf"][0]];
    let reference = references.iter().find_map(|at| at["$ref"].as_str());
    let definition = reference.and_then(|path| root.pointer(path.trim_start_matches('#')));
    definition.unwrap_or(property)
}

// === impl Setting ===

impl Setting {
    fn new(key: String, heading: &str, property: &Value, definition: &Value) -> Self {
        let declared = Declared::of(property);
        let kind = SettingKind::of(&declared, definition);
        let flag = match &declared.x_flag {
            Some(written) => Flag::parse(written),
            None => Flag::named_after(&key, &kind, declared.x_value.as_deref()),
        };
        let range = declared.x_range.as_deref().map(Range::parse);
        Self {
            key,
            heading: heading.to_owned(),
            flag,
            kind,
            range,
            declared,
        }
    }

    /// Returns the setting with this key.
    pub(super) fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the JSON pointer to the setting, such as `/listen/address`.
    pub(super) fn pointer(&self) -> String {
        format!("/{}", self.key.replace('.', "/"))
    }

    /// Returns true if the value is the path of a file or directory.
    pub(super) fn is_path(&self) -> bool {
        is_path(self.flag.value.as_deref())
    }
}

fn is_path(value_name: Option<&str>) -> bool {
    matches!(value_name, Some("FILE" | "DIR"))
}

// === impl Declared ===

impl Declared {
    /// Reads what the schema of a property declares.
    pub(super) fn of(property: &Value) -> Self {
        Self::deserialize(property).expect("attributes have the types that `settings` describes")
    }

    fn has_type(&self, name: &str) -> bool {
        let is_name = |value: &Value| value == name;
        let types = &self.r#type;
        is_name(types) || types.as_array().is_some_and(|t| t.iter().any(is_name))
    }

    /// Returns the sentence about the form of the value, such as its unit, that the JSON Schema adds
    /// to the description of the setting.
    pub(super) fn unit(&self) -> Option<&'static str> {
        match self.x_value.as_deref() {
            Some("DURATION") => Some("A number and ms, s, m or h."),
            Some("BYTES") => Some("Bytes, or a number and Ki, Mi or Gi."),
            _ => {
                let flag = self.x_flag.as_deref().map(Flag::parse)?;
                is_path(flag.value.as_deref())
                    .then_some("A relative path is relative to the configuration file.")
            }
        }
    }

    /// Returns the range as a sentence.
    pub(super) fn range_sentence(&self) -> Option<String> {
        let (first, rest) = self.x_range.as_deref()?.split_at(1);
        Some(format!("{}{rest}.", first.to_uppercase()))
    }

    /// Returns the sentences that the schema and `config/kubefan.yaml` add to the description of the
    /// setting: its range, and whether a change needs no restart.
    pub(super) fn notes(&self) -> Vec<String> {
        let live = self.x_live.then(|| "A change needs no restart.".to_owned());
        self.range_sentence().into_iter().chain(live).collect()
    }
}

// === impl SettingKind ===

impl SettingKind {
    fn of(declared: &Declared, definition: &Value) -> Self {
        let choices = definition["oneOf"].as_array().into_iter().flatten();
        let words: Vec<_> = choices
            .filter_map(|choice| choice["const"].as_str())
            .map(str::to_owned)
            .collect();
        if !words.is_empty() {
            Self::Words(words)
        } else if declared.has_type("boolean") {
            Self::Boolean
        } else if declared.has_type("array") {
            Self::List
        } else if declared.has_type("integer") && !declared.has_type("string") {
            Self::Number
        } else {
            Self::Text
        }
    }

    /// Converts the text of a flag or variable to the value that a file would have. A text that
    /// can't be converted is refused when the setting is set to it.
    pub(super) fn value(&self, text: &str) -> Value {
        let value = match self {
            Self::Boolean => text.parse::<bool>().ok().map(Value::from),
            Self::Number => match text.parse::<u64>() {
                Ok(number) => Some(number.into()),
                Err(_) => text.parse::<i64>().ok().map(Value::from),
            },
            Self::Words(_) | Self::List | Self::Text => None,
        };
        value.unwrap_or_else(|| text.into())
    }
}

// === impl Flag ===

impl Flag {
    /// Parses a flag with the name of its value, such as `-r, --resource RESOURCE`.
    fn parse(written: &str) -> Self {
        let mut flag = Self::default();
        for word in written.split_whitespace() {
            match word.strip_prefix('-') {
                Some(_) if word.starts_with("--") => flag.name = word.to_owned(),
                Some(short) => flag.short = short.chars().next(),
                None => flag.value = Some(word.to_owned()),
            }
        }
        flag
    }

    /// Returns the flag with the name of the key's last part, such as `--idle-timeout`.
    fn named_after(key: &str, kind: &SettingKind, value: Option<&str>) -> Self {
        let mut name = "--".to_owned();
        for c in key.rsplit('.').next().unwrap_or_default().chars() {
            if c.is_uppercase() {
                name.push('-');
            }
            name.push(c.to_ascii_lowercase());
        }
        let value = value.unwrap_or(match kind {
            SettingKind::Boolean => "BOOL",
            SettingKind::Number => "COUNT",
            SettingKind::Words(_) => "MODE",
            SettingKind::List | SettingKind::Text => "TEXT",
        });
        Self {
            short: None,
            name,
            value: Some(value.to_owned()),
        }
    }

    /// Returns the name as clap has it, without dashes.
    pub(super) fn long(&self) -> &str {
        self.name.trim_start_matches('-')
    }
}
