//! What every subcommand needs of its process: a runtime, the log, standard output, and a way to fail.

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::config::GlobalArgs;
use crate::config::LogFormat;
use crate::config::Problems;
use crate::shutdown::Outcome;
use crate::telemetry;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line or the configuration file can't be meant.
    #[error(transparent)]
    Usage(#[from] Problems),
    /// It failed while working.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Runs `command` on a runtime of its own, with a thread for each core.
///
/// # Errors
///
/// When there can be no runtime; else the command's own.
pub fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    run_on(Builder::new_multi_thread(), command)
}

/// Runs `command` where clients are not served: threads for a part of the cores are enough.
///
/// # Errors
///
/// When there can be no runtime; else the command's own.
pub fn block_on_few_threads(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads((cores / 4).max(2));
    run_on(builder, command)
}

fn run_on(
    mut builder: Builder,
    command: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let runtime = builder
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(command);
    // Connections that outlived the grace are not waited for.
    runtime.shutdown_background();
    outcome
}

/// Sets up the log of a command that has no configuration file.
///
/// # Errors
///
/// When `RUST_LOG` can't be read, or there is a log already.
pub fn install_log(global: &GlobalArgs, is_quiet: bool) -> Result<(), Error> {
    let log = telemetry::LogConfig {
        verbosity: global.verbose,
        is_quiet,
        format: match global.log_format {
            LogFormat::Text => telemetry::LogFormat::Text,
            LogFormat::Json => telemetry::LogFormat::Json,
        },
    };
    telemetry::install_log(log).context("cannot set up the log")?;
    Ok(())
}

/// A drain's outcome as a command's.
///
/// # Errors
///
/// When it was aborted.
pub fn drain_result(outcome: Outcome) -> Result<(), Error> {
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
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::debug!(%error, "standard output is closed");
    }
}
