//! `kubefan serve`.

use std::io::Write;

use anyhow::Context;

use crate::app::App;
use crate::config::Args;
use crate::config::Effective;
use crate::config::LogFormat;
use crate::config::ServeArgs;
use crate::config::ServeConfig;
use crate::shutdown::Outcome;
use crate::shutdown::Signals;
use crate::telemetry;

use super::Error;
use super::block_on_few_threads;

/// Serves until a signal comes; the first drains, a second ends it at once.
///
/// Prints the two addresses on standard output once they accept connections.
///
/// # Errors
///
/// Usage faults before anything is opened; else whatever keeps it from serving.
pub fn serve(args: &Args, serve: &ServeArgs) -> Result<(), Error> {
    let Effective {
        serve: config, log, ..
    } = Effective::new(args, serve)?;
    telemetry::install_log(log).context("cannot set up the log")?;
    block_on_few_threads(run(config))
}

async fn run(config: ServeConfig) -> Result<(), Error> {
    let signals = Signals::of_process().context("cannot listen for signals")?;
    let app = App::start(config).await?;
    say(&format!(
        "kubefan serves on {}\nadmin on {}\n",
        app.url(),
        app.admin_url()
    ));
    told(app.run(signals).await)
}

/// Sets up the log of a command that has no configuration file.
pub(super) fn install_log(args: &Args, is_quiet: bool) -> Result<(), Error> {
    let log = telemetry::LogConfig {
        verbosity: args.verbose,
        is_quiet,
        format: match args.log_format {
            LogFormat::Text => telemetry::LogFormat::Text,
            LogFormat::Json => telemetry::LogFormat::Json,
        },
    };
    telemetry::install_log(log).context("cannot set up the log")?;
    Ok(())
}

/// A drain's outcome as a command's.
pub(super) fn told(outcome: Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Drained => Ok(()),
        Outcome::Unfinished { tasks } => {
            tracing::warn!(tasks, "ended with connections open");
            Ok(())
        }
        Outcome::Aborted => Err(anyhow::anyhow!("aborted by a second signal").into()),
    }
}

/// Prints on standard output; that it is closed is its reader's own choice.
pub(super) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::debug!(%error, "standard output is closed");
    }
}
