//! The text of a setting, as the help of its flag, the configuration file and the pages have it.

use serde_json::Value;

use super::all_settings::Setting;

// === impl Setting ===

impl Setting {
    /// Returns the comment without the last sentence on the default, in one line.
    pub(super) fn meaning(&self) -> String {
        self.meaning_and_default().0
    }

    /// Returns the default as text. Without a value, it is the comment's last sentence, or empty.
    pub(super) fn default_text(&self) -> String {
        let (_, described) = self.meaning_and_default();
        match &self.declared.default {
            Value::String(text) => text.clone(),
            value @ (Value::Bool(_) | Value::Number(_)) => value.to_string(),
            _ => described.unwrap_or_default(),
        }
    }

    fn meaning_and_default(&self) -> (String, Option<String>) {
        let comment = self.declared.description.replace('\n', " ");
        match comment.rsplit_once(" Default: ") {
            Some((meaning, default)) => {
                let default = default.trim_end_matches('.').to_owned();
                (meaning.to_owned(), Some(default))
            }
            None => (comment, None),
        }
    }

    /// Returns the first sentence of the comment, and the default.
    pub(super) fn short_help(&self) -> String {
        let meaning = self.meaning();
        let first = meaning.split(". ").next().unwrap_or_default();
        with_flags(first.trim_end_matches('.')) + &self.default_note()
    }

    /// Returns the comment, the range and the default.
    pub(super) fn long_help(&self) -> String {
        let range = self.declared.range_sentence();
        let sentences: Vec<_> = [self.meaning()].into_iter().chain(range).collect();
        with_flags(&sentences.join(" ")) + &self.default_note()
    }

    fn default_note(&self) -> String {
        match with_flags(&self.default_text()) {
            // Such a default is clear without a note.
            default if ["", "false", "none"].contains(&default.as_str()) => String::new(),
            default => format!(" [default: {default}]"),
        }
    }
}

/// Replaces the keys in backticks by their flags, and removes all other backticks.
fn with_flags(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| match Setting::find(part) {
        Some(setting) if index % 2 == 1 => setting.flag.name.as_str(),
        _ => part,
    });
    parts.collect()
}
