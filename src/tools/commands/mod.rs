//! The subcommands of the instruments, one file each.

mod demo;
mod load;
mod sim;

use clap::Subcommand;

use crate::config::GlobalArgs;
use crate::process::Error;
use crate::tools::config::DemoArgs;
use crate::tools::config::LoadArgs;
use crate::tools::config::SimArgs;

/// Which of the instruments to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API of a simulated cluster, to try things on and to break
    Sim(SimArgs),
    /// Show kubefan at work before a simulated cluster; needs nothing else
    Demo(DemoArgs),
    /// Test how an API server's watches do under load
    Load(Box<LoadArgs>),
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// Usage faults before anything is opened; else whatever the command fails with.
    pub fn run(&self, global: &GlobalArgs) -> Result<(), Error> {
        match self {
            Self::Sim(args) => sim::sim(global, args),
            Self::Demo(args) => demo::demo(global, args),
            Self::Load(args) => load::load(global, args),
        }
    }
}
