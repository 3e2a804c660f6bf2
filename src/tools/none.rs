//! What `tools` offers in a build without them: no subcommand.

use clap::Subcommand;

use crate::config::GlobalArgs;
use crate::process::Error;

/// Which of the instruments to run: there is none.
#[derive(Debug, Subcommand)]
pub enum Command {}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// Never, as there is no such command.
    pub fn run(&self, _: &GlobalArgs) -> Result<(), Error> {
        match *self {}
    }
}
