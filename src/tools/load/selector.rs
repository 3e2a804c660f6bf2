//! The selector of each watcher, and the attribute that makes an object match the selector.

use std::fmt;

/// The placeholder for the watcher's number in a selector template.
const NUMBER: &str = "{i}";
/// The fields that a field selector may use, because the load test can set them in its objects.
const FIELDS: [&str; 3] = ["metadata.name", "spec.nodeName", "spec.schedulerName"];

/// A selector with the placeholder `{i}` for the watcher's number, such as
/// `spec.nodeName=node-{i}` or `app=load-{i}`.
///
/// A selector is a field selector if its key begins with `metadata.`, `spec.` or `status.`, and
/// otherwise a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorTemplate {
    key: String,
    value: String,
    is_field: bool,
}

/// The attribute that makes an object match a selector: a label's key, the
/// name, or a field of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribute<'a> {
    Label(&'a str),
    Name,
    Spec(&'a str),
}

// === impl SelectorTemplate ===

impl std::str::FromStr for SelectorTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let not_an_equality = || {
            format!("{text:?} is not KEY=VALUE, such as spec.nodeName=node-{{i}} or app=load-{{i}}")
        };
        let (key, value) = text.split_once('=').ok_or_else(not_an_equality)?;
        let value = value.strip_prefix('=').unwrap_or(value);
        let is_odd = |part: &str| part.is_empty() || part.contains(['=', ',', '!', '(', ' ']);
        if is_odd(key) || is_odd(value) {
            return Err(not_an_equality());
        }
        let is_field = ["metadata.", "spec.", "status."]
            .iter()
            .any(|root| key.starts_with(root));
        if is_field && !FIELDS.contains(&key) {
            let list = FIELDS.join(", ");
            return Err(format!(
                "cannot select by field {key:?}; use {list}, or a label, such as app=load-{{i}}"
            ));
        }
        let template = Self {
            key: key.to_owned(),
            value: value.to_owned(),
            is_field,
        };
        if !is_field {
            let selector = template.for_watcher(u32::MAX);
            kubefan_core::api::LabelSelector::parse(&selector)
                .map_err(|error| error.to_string())?;
        }
        Ok(template)
    }
}

impl SelectorTemplate {
    /// Returns true if each watcher has its own selector.
    pub fn is_per_watcher(&self) -> bool {
        self.value.contains(NUMBER)
    }

    /// Returns true if the watchers select by `metadata.name`, so that the selector
    /// determines the objects' names.
    pub fn is_by_name(&self) -> bool {
        self.attribute() == Attribute::Name
    }

    /// Returns the field of the spec that watchers select by. Only pods have such
    /// fields. `None` for other selectors.
    pub fn pod_field(&self) -> Option<&str> {
        match self.attribute() {
            Attribute::Spec(_) => Some(&self.key),
            _ => None,
        }
    }

    /// Returns the selector of watcher `number`, as `key=value`.
    pub(super) fn for_watcher(&self, number: u32) -> String {
        format!("{}={}", self.key, self.value_for(number))
    }

    /// Returns the value that an object needs so that watcher `number` selects it.
    pub(super) fn value_for(&self, number: u32) -> String {
        self.value.replace(NUMBER, &number.to_string())
    }

    /// Returns the name of the query parameter for this selector.
    pub(super) fn parameter(&self) -> &'static str {
        if self.is_field {
            "fieldSelector"
        } else {
            "labelSelector"
        }
    }

    pub(super) fn attribute(&self) -> Attribute<'_> {
        match (self.is_field, self.key.strip_prefix("spec.")) {
            (false, _) => Attribute::Label(&self.key),
            (true, Some(field)) => Attribute::Spec(field),
            (true, None) => Attribute::Name,
        }
    }
}

impl fmt::Display for SelectorTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_labels_are_distinguished() {
        let table = [
            (
                "spec.nodeName=node-{i}",
                "fieldSelector",
                "spec.nodeName=node-7",
                Attribute::Spec("nodeName"),
            ),
            (
                "metadata.name=x{i}y",
                "fieldSelector",
                "metadata.name=x7y",
                Attribute::Name,
            ),
            (
                "app=load-{i}",
                "labelSelector",
                "app=load-7",
                Attribute::Label("app"),
            ),
            (
                "example.com/app==a",
                "labelSelector",
                "example.com/app=a",
                Attribute::Label("example.com/app"),
            ),
        ];
        for (text, parameter, seventh, attribute) in table {
            let template: SelectorTemplate = text.parse().expect(text);
            assert_eq!(
                (template.parameter(), template.attribute()),
                (parameter, attribute)
            );
            assert_eq!(template.for_watcher(7), seventh);
        }
    }

    #[test]
    fn invalid_selectors_are_reported() {
        for (text, part) in [
            ("app", "is not KEY=VALUE"),
            ("app!=x", "is not KEY=VALUE"),
            ("a=b,c=d", "is not KEY=VALUE"),
            ("=x", "is not KEY=VALUE"),
            (
                "status.phase=Running",
                "\"status.phase\"; use metadata.name, spec.nodeName",
            ),
            ("app=-{i}-", "app"),
        ] {
            let error = text
                .parse::<SelectorTemplate>()
                .expect_err(text)
                .to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
