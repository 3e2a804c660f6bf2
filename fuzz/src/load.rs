//! What of the load test parses foreign bytes.

#[path = "../../src/tools/load/watch/frames.rs"]
mod frames;

pub use frames::Cutter;
pub use frames::Kind;
pub use frames::TooLong;
pub use frames::Versions;
