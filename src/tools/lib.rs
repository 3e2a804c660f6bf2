//! The tools: a simulated API server, a load test for watches, a synthetic cluster, and a demo.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod agents;
pub mod app;
pub mod commands;
pub mod config;
pub mod load;
pub mod sim;
pub mod simulator;
pub mod workload;

pub use commands::Command;
