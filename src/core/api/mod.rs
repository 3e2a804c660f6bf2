//! Kubernetes terms such as objects and selectors as plain values: no I/O, no async, no locks.

mod go_escapes;
mod object;
mod object_values;
mod options;
mod resource;
mod resource_version;
mod selector;
mod status;
mod watch_event;

pub(crate) use go_escapes::escape_as_go;
pub use object::{Object, ObjectKey};
pub use object_values::ObjectValues;
pub use options::{
    Consistency, ContinueToken, GetOptions, ListOptions, ListRequest, Malformed, Query,
    WatchRequest, WatchStart, pretty_parameter, request_timeout, should_indent,
};
pub use resource::{GroupVersionKind, GroupVersionResource, Resource, WireFormat};
pub use resource_version::{ParseResourceVersionError, ResourceVersion};
pub use selector::{
    Field, FieldSelector, FieldTerm, FieldValue, HashedSelection, LabelOperator, LabelRequirement,
    LabelSelector, RawFieldSelector, SelectableField, SelectableFields, Selection, ShardSelector,
    ShardSelectorError, escape_field_value, is_dns_label, is_label_key,
};
pub use status::{Status, StatusCause, StatusDetails, StatusMetadata};
pub use watch_event::{Bookmark, EventType, ListPage, WatchEvent};
