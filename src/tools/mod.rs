//! The tools: a simulated API server, a load test for watches, a synthetic cluster, and a demo.
//!
//! Without the feature `tools`, `lib.rs` uses `none.rs` as this module.

pub mod agents;
pub mod app;
pub mod commands;
pub mod config;
pub mod load;
pub mod sim;
pub mod workload;

pub use commands::Command;
