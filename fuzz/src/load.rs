//! The load test's parser of watch frames, which reads bytes from any server.

#[path = "../../src/tools/load/watch/frames.rs"]
mod frames;

pub use frames::FrameCutter;
pub use frames::FrameTooLong;
pub use frames::FrameType;
pub use frames::VersionFinder;
