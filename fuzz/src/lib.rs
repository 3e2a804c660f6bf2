//! The parsers of kubefan as libFuzzer runs them.
//!
//! The two rooms that parse, and the one file of the load test that does, are compiled here once more, by themselves: with all else of kubefan
//! each build would take many minutes, and libFuzzer would count code that no input reaches.

extern crate self as kubefan;

#[path = "../../src/api/mod.rs"]
pub mod api;
#[path = "../../src/codec/mod.rs"]
pub mod codec;
pub mod load;
pub mod properties;

/// kubefan's door to what it does not promise, with what the properties use of it.
pub mod internals {
    /// The instruments.
    pub mod tools {
        pub use crate::load;
    }
}
