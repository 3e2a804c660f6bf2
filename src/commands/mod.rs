//! The subcommands, one file each.

mod config;
mod demo;
mod kubeconfig;
mod serve;
mod sim;

pub use config::config;
pub use demo::demo;
pub use kubeconfig::kubeconfig;
pub use serve::serve;
pub use sim::sim;

use crate::config::Faults;

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
