//! The writing side: changes and relists, and what they come to.

mod difference;
mod loose;
mod relist;
mod writer;

pub use difference::Replaced;
pub use relist::Relist;
pub use writer::WentBack;
pub use writer::Writer;
