//! The instruments: a simulated API server, a load test, a synthetic cluster, and the demo of them.
//!
//! Without the feature `tools`, `lib.rs` mounts `none.rs` in place of this.

pub mod app;
pub mod commands;
pub mod config;
pub mod load;
pub mod sim;
pub mod workload;

pub use commands::Command;
