//! The module `tools` of a proxy that is built without the feature `tools`: it has no subcommands.

use clap::Subcommand;

use crate::config::GlobalArgs;
use crate::process::Error;

/// The subcommands of the tools; empty in this build.
#[derive(Debug, Subcommand)]
pub enum Command {}

impl Command {
    /// Never called, because a value of this type cannot exist.
    ///
    /// # Errors
    ///
    /// Never fails.
    pub fn run(&self, _: &GlobalArgs) -> Result<(), Error> {
        match *self {}
    }
}
