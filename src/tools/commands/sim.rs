//! `kubefan sim`: the simulated API server as a program.

use anyhow::Context;
use kubefan_core::shutdown::Signals;
use kubefan_proxy::config::GlobalArgs;
use kubefan_proxy::process::{Error, block_on, drain_result, install_log, print, unless_stopped};

use crate::app::SimulatedApp;
use crate::config::{SimArgs, SimConfig};

/// Serves a simulated API until a signal arrives. The first signal starts the drain, a second one
/// ends it at once.
///
/// Prints the URLs of both listeners on standard output when they accept connections.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags, before any socket is opened; [`Error::Failed`] if
/// the simulator cannot start or the drain was aborted.
pub(super) fn sim(global: &GlobalArgs, args: &SimArgs) -> Result<(), Error> {
    let config = SimConfig::try_from(args)?;
    install_log(global, false)?;
    block_on(run(config))
}

async fn run(config: SimConfig) -> Result<(), Error> {
    let mut signals = Signals::of_process().context("cannot listen for signals")?;
    let start = async { Ok(SimulatedApp::start(config).await?) };
    let Some(app) = unless_stopped(start, &mut signals).await? else {
        return Ok(());
    };
    let (url, admin) = (app.url(), app.admin_url());
    let lines = format!("simulated API server on {url}\nadmin on {admin}\n");
    print(&lines);
    drain_result(app.run(signals).await)
}
