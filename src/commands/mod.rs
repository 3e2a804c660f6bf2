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

use anyhow::Context;

use crate::config::Faults;

/// Runs `command` on a runtime of its own.
fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
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
