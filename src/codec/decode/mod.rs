//! What upstream sends, read: lists, watch frames and single objects.

mod decoder;
mod frame;
mod list_decoder;

pub(crate) use decoder::INITIAL_EVENTS_END;

pub use decoder::Decoder;
pub use frame::FrameSplitter;
pub use list_decoder::ListDecoder;
