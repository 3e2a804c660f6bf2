//! The writing side: changes and relists, and what they come to.

mod difference;
mod frame_backed_objects;
mod relist;
mod writer;

pub use difference::ReplaceOutcome;
pub use relist::Relist;
pub use writer::WentBack;
pub use writer::Writer;
