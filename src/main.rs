//! The `kubefan` program: sets jemalloc as the allocator and runs the command line.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod commands;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    commands::run()
}
