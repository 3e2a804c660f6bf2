//! The subcommands, one file each.

mod config;
mod demo;
mod kubeconfig;
mod load;
mod serve;
mod sim;

pub use config::config;
pub use demo::demo;
pub use kubeconfig::kubeconfig;
pub use load::load;
pub use serve::serve;
pub use sim::sim;

use std::num::NonZeroUsize;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::config::Faults;

/// Runs `command` on a runtime of its own, with a thread for each core.
fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    run_on(Builder::new_multi_thread(), command)
}

/// Runs `command` where clients are not served: threads for a part of the cores are enough.
fn block_on_few_threads(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads((cores / 4).max(2));
    run_on(builder, command)
}

fn run_on(
    mut builder: Builder,
    command: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let runtime = builder
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(command);
    // Connections that outlived the grace are not waited for.
    runtime.shutdown_background();
    outcome
}

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line or the configuration file can't be meant.
    #[error(transparent)]
    Usage(#[from] Faults),
    /// It failed while working.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}
