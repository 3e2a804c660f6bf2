//! kubefan's parsers for libFuzzer.
//!
//! This crate compiles only the rooms `api` and `codec`, and the load test's parser of watch
//! frames. A build of all of kubefan would take many minutes, and libFuzzer would count code that
//! no input reaches.

extern crate self as kubefan;

#[path = "../../src/api/mod.rs"]
pub mod api;
#[path = "../../src/codec/mod.rs"]
pub mod codec;
pub mod load;
pub mod properties;

/// Replaces kubefan's module of the same name, with the parts that the properties use.
pub mod internals {
    /// Replaces `kubefan::internals::tools`.
    pub mod tools {
        pub use crate::load;
    }
}
