//! Upstream's bytes to `api` values and back, in both wire formats.
//!
//! Objects are never parsed into trees: a scan finds the few values that reads select by, and the
//! bytes are kept as they came. Printing puts constant bytes around them.

mod bookmark;
mod decoder;
mod encoder;
mod error;
mod field_tree;
mod frame;
mod indent;
mod json;
mod list_decoder;
mod list_parts;
mod metadata;
mod negotiate;
mod object_meta;
mod protobuf;
mod protobuf_writer;
mod representation;
mod scanner;
mod status;
mod status_format;
mod table;
mod to_json;
mod type_meta;

#[cfg(test)]
mod frame_tests;
#[cfg(test)]
mod indent_tests;
#[cfg(test)]
mod list_decoder_tests;
#[cfg(test)]
mod metadata_tests;
#[cfg(test)]
mod negotiate_tests;
#[cfg(test)]
mod scanner_tests;
#[cfg(test)]
mod tests;

pub use bookmark::BookmarkTemplate;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::Error;
pub use frame::FrameSplitter;
pub use indent::Indenter;
pub use indent::indented;
pub use list_decoder::ListDecoder;
pub use list_parts::ListItems;
pub use list_parts::ListParts;
pub use metadata::OBJECT_META;
pub use negotiate::Negotiated;
pub use negotiate::ReadVerb;
pub use negotiate::negotiate;
pub use representation::MetaVersion;
pub use representation::Representation;
pub use representation::View;
pub use status::decode_status;
pub use status_format::StatusFormat;
pub use table::ColumnDefinition;
pub use table::IncludeObject;
pub use table::ListMetadata;
pub use table::Printer;
pub use table::RowObject;
pub use table::TableWriter;
pub use table::put_json;
pub use to_json::protobuf_to_json;
pub use type_meta::TypeMeta;
