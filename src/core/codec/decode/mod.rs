//! Decodes the lists, watch frames and single objects that the upstream sends.

mod bookmark;
mod decoder;
mod frame;
mod json_list;
mod list_decoder;
mod protobuf_list;

pub(crate) use bookmark::INITIAL_EVENTS_END;
pub use decoder::Decoder;
pub use frame::FrameSplitter;
pub use list_decoder::ListDecoder;
