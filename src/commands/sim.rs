//! `kubefan sim`.

use anyhow::Context;

use crate::app::SimulatedApp;
use crate::config::Args;
use crate::config::SimArgs;
use crate::config::SimConfig;
use crate::shutdown::Signals;

use super::Error;
use super::block_on;
use super::serve::install_log;
use super::serve::say;
use super::serve::told;

/// Serves a simulated cluster until a signal comes; the first drains, a second ends it at once.
///
/// Prints the two addresses on standard output once they accept connections.
///
/// # Errors
///
/// Usage faults before anything is opened; else whatever keeps it from serving.
pub fn sim(args: &Args, sim: &SimArgs) -> Result<(), Error> {
    let config = SimConfig::try_from(sim)?;
    install_log(args, false)?;
    block_on(run(config))
}

async fn run(config: SimConfig) -> Result<(), Error> {
    let signals = Signals::of_process().context("cannot listen for signals")?;
    let app = SimulatedApp::start(config).await?;
    let (url, admin) = (app.url(), app.admin_url());
    let lines = format!("simulated API server on {url}\nadmin on {admin}\n");
    say(&lines);
    told(app.run(signals).await)
}
