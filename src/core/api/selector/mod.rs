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

pub use field::{RawFieldSelector, escape_field_value};
pub use hashed::HashedSelection;
pub use label_syntax::{is_dns_label, is_key as is_label_key};
pub use selectable_fields::{FieldValue, SelectableField, SelectableFields};
pub use selection::{
    Field, FieldSelector, FieldTerm, LabelOperator, LabelRequirement, LabelSelector, Selection,
};
pub use shard::{ShardSelector, ShardSelectorError};
