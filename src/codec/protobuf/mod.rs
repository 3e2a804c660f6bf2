//! Protobuf: read by field numbers without a schema, written, and told in JSON by a schema.

mod fields;
mod to_json;
mod writer;

pub(crate) use fields::Field;
pub(crate) use fields::Fields;
pub(crate) use fields::MAGIC;
pub(crate) use fields::RESOURCE_VERSION;
pub(crate) use fields::content_start;
pub(crate) use fields::envelope;
pub(crate) use fields::event;
pub(crate) use fields::list;
pub(crate) use fields::map_entry;
pub(crate) use fields::object;
pub(crate) use fields::unframed;
pub(crate) use writer::ENVELOPE_END;
pub(crate) use writer::envelope_start;
pub(crate) use writer::enveloped;
pub(crate) use writer::frame;
pub(crate) use writer::put_bytes;
pub(crate) use writer::put_number;
pub(crate) use writer::put_prefix;
pub(crate) use writer::varint_length;
pub(crate) use writer::with_resource_version;

pub use to_json::protobuf_to_json;
