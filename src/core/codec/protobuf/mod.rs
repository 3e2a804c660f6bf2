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
pub(crate) use fields::{ANNOTATIONS, RESOURCE_VERSION, texts_of};
pub use fields::{Field, Fields};
pub(crate) use list::list;
pub(crate) use object::object;
pub use to_json::protobuf_to_json;
pub(crate) use writer::{
    ENVELOPE_END, envelope_start, enveloped, frame, put_prefix, texts, varint_length,
    with_resource_version, without_managed_fields,
};
pub use writer::{put_bytes, put_fixed64, put_number};
