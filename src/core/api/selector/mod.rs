//! Selections of objects: label, field and shard selectors, and each kind's selectable fields.

mod builtin_fields;
mod containment;
mod cost;
mod field;
mod hashed;
mod label;
mod label_syntax;
mod selectable_fields;
mod selection;
mod shard;

pub use field::RawFieldSelector;
pub use field::escape_field_value;
pub use hashed::HashedSelection;
pub use label_syntax::is_dns_label;
pub use label_syntax::is_key as is_label_key;
pub use selectable_fields::FieldValue;
pub use selectable_fields::SelectableField;
pub use selectable_fields::SelectableFields;
pub use selection::Field;
pub use selection::FieldSelector;
pub use selection::FieldTerm;
pub use selection::LabelOperator;
pub use selection::LabelRequirement;
pub use selection::LabelSelector;
pub use selection::Selection;
pub use shard::ShardSelector;
pub use shard::ShardSelectorError;
