//! The fields of a kind that selectors may name, and their values' paths in JSON and protobuf.

use super::Field;
use crate::api::Malformed;

/// The fields of one kind that `fieldSelector` accepts besides `metadata.name`.
///
/// The default accepts `metadata.name` and `metadata.namespace`, as most built-in kinds do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableFields {
    /// The fields with values; `Object::fields` returns an object's values in this order.
    pub fields: Vec<SelectableField>,
    /// True if `metadata.namespace` is accepted.
    pub accepts_namespace: bool,
    /// Other accepted names with their fields, such as a Pod's `spec.host` for `spec.nodeName`.
    pub aliases: Vec<(String, Field)>,
    /// Pairs of positions: if the first field's value is empty, it is the second one's.
    pub substitutes: Vec<(usize, usize)>,
    /// The names of those `fields` that the API server refuses, because it is too old for them, or
    /// because it has said so. So the positions of the others do not depend on its version.
    pub refused: Vec<String>,
}

/// A field that field selectors can compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The field's name in selectors, such as `spec.nodeName`.
    pub label: String,
    /// The JSON keys from the object's root to the value; a decimal number is an array index.
    pub json_path: Vec<String>,
    /// The protobuf field numbers from the object's root to the value, through the first element
    /// of each repeated field. Empty for custom resources, which have no protobuf encoding.
    pub protobuf_path: Vec<u32>,
    /// How the value is converted to text for the comparison with a selector.
    pub value: FieldValue,
}

/// How the value of a [`SelectableField`] is converted to text, and which text means absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A string, unchanged; "" if absent.
    Text,
    /// `true` or `false`; "false" if absent.
    Boolean,
    /// A decimal number; "0" if absent.
    Integer,
    /// A scalar of a custom resource as the API server formats it; "" if absent or null.
    Scalar,
}

// === impl SelectableFields ===

impl Default for SelectableFields {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            accepts_namespace: true,
            aliases: Vec::new(),
            substitutes: Vec::new(),
            refused: Vec::new(),
        }
    }
}

impl SelectableFields {
    /// Returns the selectable fields of a custom resource. `json_paths` are the `selectableFields`
    /// of its version, such as `.spec.color`.
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
            ..Self::default()
        }
    }

    /// Returns the index in `Object::fields` of the value of the selectable field `label`. `None`
    /// if `label` is unknown, or is an alias of another field.
    pub fn position(&self, label: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.label == label)
    }

    /// Returns the name of `field` in selectors, or `None` if the kind does not have it.
    pub(super) fn label(&self, field: Field) -> Option<&str> {
        let alias = || self.aliases.iter().find(|(_, aliased)| *aliased == field);
        match field {
            Field::Name => Some("metadata.name"),
            Field::Namespace => Some("metadata.namespace"),
            Field::Value(position) => Some(&self.fields.get(position)?.label),
            Field::Empty => alias().map(|(label, _)| label.as_str()),
        }
    }

    /// Returns these fields with none of them refused.
    pub fn accepting_all(&self) -> Self {
        Self {
            refused: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns true if both tables give objects equal values, and give selectors equal meanings.
    /// Refused fields are not compared, because they change only with the API server's version.
    pub fn equals_unless_refused(&self, other: &Self) -> bool {
        let Self {
            fields,
            accepts_namespace,
            aliases,
            substitutes,
            refused: _,
        } = self;
        *fields == other.fields
            && *accepts_namespace == other.accepts_namespace
            && *aliases == other.aliases
            && *substitutes == other.substitutes
    }

    /// Returns the field that `label` names in a selector.
    ///
    /// # Errors
    /// If the kind has no selectable field with this name, or the API server refuses it.
    pub fn resolve(&self, label: &str) -> Result<Field, Malformed> {
        let alias = || self.aliases.iter().find(|(alias, _)| alias == label);
        match label {
            "metadata.name" => Ok(Field::Name),
            "metadata.namespace" if self.accepts_namespace => Ok(Field::Namespace),
            _ => self
                .position(label)
                .filter(|_| !self.refused.iter().any(|refused| refused == label))
                .map(Field::Value)
                .or_else(|| alias().map(|(_, field)| *field))
                .ok_or_else(|| {
                    let problem =
                        format!("objects of this kind have no selectable field {label:?}");
                    Malformed::new("fieldSelector", problem)
                }),
        }
    }
}
