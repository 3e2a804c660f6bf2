//! The subcommands of the tools, one file each.

mod demo;
mod load;
mod sim;

use clap::Subcommand;
use kubefan_proxy::config::GlobalArgs;
use kubefan_proxy::process::Error;

use crate::config::{DemoArgs, LoadArgs, SimArgs};

/// The subcommands of the tools.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a simulated Kubernetes API, with fault injection
    Sim(SimArgs),
    /// Run kubefan in front of a simulated cluster; needs no cluster
    Demo(DemoArgs),
    /// Run a load test for the watches of an API server
    Load(Box<LoadArgs>),
}

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for mistakes in the flags, before any socket is opened; [`Error::Failed`]
    /// for any other failure.
    pub fn run(&self, global: &GlobalArgs) -> Result<(), Error> {
        match self {
            Self::Sim(args) => sim::sim(global, args),
            Self::Demo(args) => demo::demo(global, args),
            Self::Load(args) => load::load(global, args),
        }
    }
}
