//! The `kubefan` binary: it sets jemalloc as the allocator and runs the command line.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    kubefan::run()
}
