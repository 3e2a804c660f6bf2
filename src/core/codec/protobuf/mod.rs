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

pub(crate) use envelope::{MAGIC, content_start, envelope};
pub(crate) use event::{event, unframed};
pub(crate) use fields::{ANNOTATIONS, Field, Fields, RESOURCE_VERSION, texts_of};
pub(crate) use list::list;
pub(crate) use object::object;
pub use to_json::protobuf_to_json;
pub(crate) use writer::{
    ENVELOPE_END, envelope_start, enveloped, frame, put_bytes, put_number, put_prefix, texts,
    varint_length, with_resource_version, without_managed_fields,
};
