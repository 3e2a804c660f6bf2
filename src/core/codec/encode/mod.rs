//! Encodes the lists, watch frames and single objects that clients receive.

mod bookmark;
mod encoder;
mod list_metadata;
mod list_parts;
mod work;

pub use bookmark::BookmarkTemplate;
pub use encoder::Encoder;
pub use list_metadata::ListMetadata;
pub use list_parts::{ListItems, ListParts};
pub use work::Work;
