//! The subcommands, one file each.

mod kubeconfig;
mod serve;

pub use kubeconfig::kubeconfig;
pub use serve::serve;

use crate::config::Faults;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line can't be meant.
    #[error(transparent)]
    Usage(#[from] Faults),
    /// It failed while working.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}
