//! The writing side: changes and relists, and what they come to.

mod relist;
mod writer;

pub(in crate::cache) use relist::Difference;
pub use relist::Relist;
pub use writer::Replaced;
pub use writer::WentBack;
pub use writer::Writer;
