//! Protobuf: reads messages by field number without a schema, writes messages, and converts them
//! to JSON with a schema.

mod envelope;
mod event;
mod fields;
mod list;
mod object;
mod schema;
mod to_json;
mod writer;

pub(crate) use envelope::MAGIC;
pub(crate) use envelope::content_start;
pub(crate) use envelope::envelope;
pub(crate) use event::event;
pub(crate) use event::unframed;
pub(crate) use fields::ANNOTATIONS;
pub(crate) use fields::Field;
pub(crate) use fields::Fields;
pub(crate) use fields::RESOURCE_VERSION;
pub(crate) use fields::map_entry;
pub(crate) use list::list;
pub(crate) use object::object;
pub(crate) use writer::ENVELOPE_END;
pub(crate) use writer::envelope_start;
pub(crate) use writer::enveloped;
pub(crate) use writer::frame;
pub(crate) use writer::put_bytes;
pub(crate) use writer::put_number;
pub(crate) use writer::put_prefix;
pub(crate) use writer::varint_length;
pub(crate) use writer::with_resource_version;
pub(crate) use writer::without_managed_fields;

pub use to_json::protobuf_to_json;
