//! Which fields of a kind selectors may name, and where their values stand in both formats.

use super::Field;
use super::builtin_fields;
use crate::api::Malformed;
use crate::api::Resource;

/// The fields of one kind that `fieldSelector` accepts beside `metadata.name`.
///
/// The default is that of built-in kinds without a rule of their own: `metadata.name` and
/// `metadata.namespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableFields {
    /// The fields; their values stand in `Object::fields` in this order.
    pub fields: Vec<SelectableField>,
    /// True when `metadata.namespace` is accepted.
    pub accepts_namespace: bool,
    /// Further accepted labels and what each of them means, such as a Pod's `spec.host`.
    pub aliases: Vec<(String, Field)>,
}

/// One selectable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// Its name in selectors, such as `spec.nodeName`.
    pub label: String,
    /// Keys from the object's root; a decimal number indexes an array.
    pub json_path: Vec<String>,
    /// Field numbers from the object's root; the first element of a repeated field is meant.
    /// Empty for custom resources, which have no protobuf form.
    pub protobuf_path: Vec<u32>,
    /// How its value is printed.
    pub value: FieldValue,
}

/// How the value of a [`SelectableField`] is printed, and what an absent one counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A string verbatim; absent is "".
    Text,
    /// `true` or `false`; absent is "false".
    Boolean,
    /// A decimal number; absent is "0".
    Integer,
    /// A custom resource's scalar in its default formatting; absent or null is "".
    Scalar,
}

// === impl SelectableFields ===

impl Default for SelectableFields {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            accepts_namespace: true,
            aliases: Vec::new(),
        }
    }
}

impl SelectableFields {
    /// The fields of a built-in resource.
    ///
    /// Events are not covered: they are never cached.
    pub fn for_resource(resource: &Resource) -> Self {
        builtin_fields::selectable_fields(resource)
    }

    /// The fields of a custom resource, `json_paths` being the `selectableFields` of its version
    /// (`.spec.color`).
    pub fn custom(namespaced: bool, json_paths: &[String]) -> Self {
        let field = |path: &String| {
            let label = path.strip_prefix('.').unwrap_or(path);
            SelectableField {
                label: label.to_owned(),
                json_path: label.split('.').map(str::to_owned).collect(),
                protobuf_path: Vec::new(),
                value: FieldValue::Scalar,
            }
        };
        Self {
            fields: json_paths.iter().map(field).collect(),
            accepts_namespace: namespaced,
            aliases: Vec::new(),
        }
    }

    /// Where the value of `label` stands in `Object::fields`; aliases are not looked at.
    pub fn position(&self, label: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.label == label)
    }

    /// What `label` names in selectors.
    ///
    /// # Errors
    ///
    /// When the kind has no such field.
    pub fn resolve(&self, label: &str) -> Result<Field, Malformed> {
        let alias = || self.aliases.iter().find(|(alias, _)| alias == label);
        match label {
            "metadata.name" => Ok(Field::Name),
            "metadata.namespace" if self.accepts_namespace => Ok(Field::Namespace),
            _ => self
                .position(label)
                .map(Field::Value)
                .or_else(|| alias().map(|(_, field)| *field))
                .ok_or_else(|| {
                    let problem = format!("objects of this kind can't be selected by {label:?}");
                    Malformed::new("fieldSelector", problem)
                }),
        }
    }
}
