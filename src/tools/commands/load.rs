//! `kubefan load`: runs the load test for watches, and prints and writes its report.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kubefan_core::shutdown;
use kubefan_core::shutdown::{Outcome, Shutdown, Signals};
use kubefan_proxy::config::GlobalArgs;
use kubefan_proxy::process::{Error, install_log, print};

use crate::config::{LoadArgs, LoadConfig};
use crate::load;
use crate::load::{Progress, Report};

/// How long the test may take after a signal to report and to delete its objects.
const GRACE: Duration = Duration::from_secs(60);

/// Runs a load test and prints its report.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags, before any socket is opened. [`Error::Failed`] if
/// the test cannot run or clean up; if watchers missed events, or got them twice, out of order or
/// without a match; if watchers did not resume; or if the server did not accept the writes in time.
pub(super) fn load(global: &GlobalArgs, args: &LoadArgs) -> Result<(), Error> {
    let config = LoadConfig::try_from(args)?;
    for path in [&config.json, &config.html].into_iter().flatten() {
        check_writable(path)?;
    }
    // The log is quiet: the progress of the test is on standard error too, and the log would hide
    // it.
    install_log(global, true)?;
    // One thread is enough for the writes; the events are received on other threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(run(config));
    runtime.shutdown_background();
    outcome
}

async fn run(config: LoadConfig) -> Result<(), Error> {
    let signals = Signals::of_process().context("cannot listen for signals")?;
    let shutdown = Shutdown::new(shutdown::Config {
        not_ready_delay: Duration::ZERO,
        grace: GRACE,
    });
    let test = {
        let (config, shutdown) = (config.load.clone(), shutdown.clone());
        let mut progress = Progress::to_stderr();
        // `shutdown` counts the task, so that a drain waits until it has deleted its objects.
        let running = shutdown.clone();
        shutdown.spawn(async move { load::run(&config, &mut progress, &running).await })
    };
    let aborted = async {
        match shutdown.run(signals).await {
            Outcome::Aborted | Outcome::Unfinished { .. } => (),
            // The test has ended by itself. Its report or its error is the result.
            Outcome::Drained => std::future::pending().await,
        }
    };
    let report = tokio::select! {
        report = test => report.context("the test ended early")?,
        () = aborted => {
            let problem = "aborted: namespaces and objects labelled app.kubernetes.io/managed-by=kubefan-load may be left";
            return Err(anyhow::anyhow!(problem).into());
        }
    };
    publish(&report.map_err(anyhow::Error::from)?, &config)
}

/// Prints the report and writes the files. Fails if the report shows a delivery error, watchers that
/// did not resume, writes that were given up, a comparison that failed, or objects that could not be
/// deleted.
fn publish(report: &Report, config: &LoadConfig) -> Result<(), Error> {
    print(&load::table(report));
    if let Some(path) = &config.json {
        write(path, &report.to_json().context("cannot print the report")?)?;
    }
    if let Some(path) = &config.html {
        write(path, &load::page(report))?;
    }
    let (errors, given_up) = (report.delivery_errors(), report.given_up());
    let not_resumed = report.not_resumed();
    let left_behind = report.runs.iter().find_map(|run| run.left_behind.as_ref());
    let problem = if !errors.is_empty() {
        errors.describe(" events")
    } else if not_resumed > 0 {
        format!("{not_resumed} watchers were not live again in time after the cut")
    } else if given_up > 0 {
        format!("{given_up} writes were not acknowledged in time: the server cannot keep up")
    } else if let Some(problem) = report.compared_failed.as_ref().or(left_behind) {
        problem.clone()
    } else {
        return Ok(());
    };
    Err(anyhow::anyhow!(problem).into())
}

/// Checks before the test that a report can be written to `path`; creates the file if necessary.
fn check_writable(path: &Path) -> Result<(), Error> {
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened
        .map(drop)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
