//! Decodes the upstream's bytes into `api` values and encodes them again, in both wire formats.
//!
//! Objects are never parsed into trees. A scan finds the few values that selectors need, and the
//! object keeps the upstream's bytes. Encoding puts constant bytes around them.
//!
//! `json` and `protobuf` implement one wire format each; `decode` and `encode` use both.
//! `metadata` makes objects that have metadata only, and `table` prints Tables. `negotiate` chooses
//! the representation that a client gets.

mod answered_object;
mod decode;
mod encode;
mod error;
mod field_tree;
mod head;
mod json;
mod metadata;
mod negotiate;
mod protobuf;
mod status;
mod status_format;
mod table;
mod type_meta;

#[cfg(test)]
mod tests;

pub use answered_object::{AnsweredObject, Deletion};
pub use decode::{Decoder, FrameSplitter, ListDecoder};
pub use encode::{BookmarkTemplate, Encoder, ListItems, ListMetadata, ListParts, Work};
pub use error::Error;
pub use json::{Indenter, indented};
pub use metadata::OBJECT_META;
pub use negotiate::{
    MetaVersion, Negotiated, ReadVerb, Representation, View, negotiate, negotiate_json,
};
pub use protobuf::protobuf_to_json;
/// For the spans of the proxy.
#[doc(hidden)]
pub use protobuf::{
    Field as ProtobufField, Fields as ProtobufFields, put_bytes, put_fixed64, put_number,
};
pub use status::decode_status;
pub use status_format::StatusFormat;
pub use table::{
    Clock, ColumnDefinition, IncludeObject, KeptRows, Printer, RowMemory, RowObject, TableView,
    TableWriter, put_json,
};
pub use type_meta::TypeMeta;
