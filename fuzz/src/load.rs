//! What of the load test parses foreign bytes.

#[path = "../../src/tools/load/watch/frames.rs"]
mod frames;

pub use frames::FrameCutter;
pub use frames::FrameTooLong;
pub use frames::FrameType;
pub use frames::VersionFinder;
