//! What every subcommand needs from its process: a runtime, the log, standard output, and the
//! conversion of errors to exit codes.

use std::io;
use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::Context;
use kubefan_core::shutdown::{Outcome, Signals};
use kubefan_core::telemetry;
use tokio::runtime::Builder;

use crate::config::{GlobalArgs, Problems};

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line or the configuration has mistakes.
    #[error(transparent)]
    Usage(#[from] Problems),
    /// The subcommand failed for another reason.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// Runs `command` on a new runtime with one worker thread per core.
///
/// # Errors
///
/// If the runtime cannot be started, or `command` fails.
pub fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    run_on(Builder::new_multi_thread(), command)
}

/// Runs `command` on a new runtime with one worker thread for every four cores, at least two. This
/// is enough for a command that serves its clients on other threads.
///
/// # Errors
///
/// If the runtime cannot be started, or `command` fails.
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
    // Do not wait for connections that are still open after the grace period.
    runtime.shutdown_background();
    outcome
}

/// Runs `start` to its end, or until a signal arrives. After a signal, `start` is dropped, and the
/// result is `None`.
///
/// # Errors
///
/// The errors of `start`.
pub async fn unless_stopped<T>(
    start: impl Future<Output = Result<T, Error>>,
    signals: &mut Signals,
) -> Result<Option<T>, Error> {
    tokio::select! {
        biased;
        signal = signals.next() => {
            tracing::info!(signal, "stopped before the start was complete");
            Ok(None)
        }
        started = start => started.map(Some),
    }
}

/// Sets up the log of a subcommand without a configuration file. If `is_quiet` is true, the log has
/// only warnings and errors, unless `-v` or `RUST_LOG` asks for more.
///
/// # Errors
///
/// If `RUST_LOG` cannot be parsed, or the log is already set up.
pub fn install_log(global: &GlobalArgs, is_quiet: bool) -> Result<(), Error> {
    let log = telemetry::LogConfig {
        verbosity: global.verbose,
        is_quiet,
        format: global.log_format.into(),
    };
    let _handle = telemetry::install_log(log).context("cannot set up the log")?;
    Ok(())
}

/// Converts the outcome of a drain to the result of a subcommand. A drain that did not finish
/// within the grace period is logged and is not an error.
///
/// # Errors
///
/// If a second signal aborted the drain.
pub fn drain_result(outcome: Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Drained => Ok(()),
        Outcome::Unfinished { tasks } => {
            tracing::warn!(tasks, "the grace period ended before all tasks did");
            Ok(())
        }
        Outcome::Aborted => Err(anyhow::anyhow!("aborted by a second signal").into()),
    }
}

/// Prints on standard output. A closed standard output is not an error, because only its reader can
/// close it.
pub fn print(text: &str) {
    if let Err(error) = write_to_stdout(text) {
        tracing::debug!(%error, "standard output is closed");
    }
}

/// Writes `text` to standard output at once.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn write_to_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
