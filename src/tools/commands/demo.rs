//! `kubefan demo`: kubefan between a simulated cluster that changes all the time and simulated
//! clients.

mod screen;
mod terminal;

use std::time::Duration;

use anyhow::Context;
use kubefan_core::shutdown::{Outcome, Signals};
use kubefan_proxy::config::GlobalArgs;
use kubefan_proxy::process::{Error, block_on, drain_result, install_log, print, unless_stopped};
use screen::Facts;
use terminal::Terminal;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

use crate::app::{Demo, DemoApp};
use crate::config::{DemoArgs, DemoConfig};

/// How often the demo prints a line about what happened so far.
const REPORT: Duration = Duration::from_secs(5);
/// How often the screen is drawn.
const REDRAW: Duration = Duration::from_secs(1);

/// Runs a simulated cluster, a kubefan in front of it and clients until a signal arrives.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags, before any socket is opened; [`Error::Failed`] if a
/// server cannot start, a file cannot be written, or the drain was aborted.
pub(super) fn demo(global: &GlobalArgs, args: &DemoArgs) -> Result<(), Error> {
    let config = DemoConfig::try_from(args)?;
    // The log is quiet, because it would hide what the demo prints.
    install_log(global, true)?;
    block_on(run(config, args.plain))
}

async fn run(config: DemoConfig, is_plain: bool) -> Result<(), Error> {
    let mut signals = Signals::of_process().context("cannot listen for signals")?;
    print("Starting a simulated cluster, kubefan and its clients ...\n");
    let start = async { Ok(DemoApp::start(config.clone()).await?) };
    let Some(app) = unless_stopped(start, &mut signals).await? else {
        return Ok(());
    };
    let demo = app.demo.clone();
    let facts = Facts {
        config,
        url: app.kubefan.url(),
        admin_url: app.kubefan.admin_url(),
        simulated_url: app.simulated.url(),
        fault_url: app.simulated.admin_url(),
    };
    let terminal = if is_plain { None } else { Terminal::open() };
    let show = async move {
        match terminal {
            Some(terminal) => show_screen(terminal, &facts, &demo).await,
            None => print_lines(&facts, &demo).await,
        }
    };
    tokio::select! {
        outcome = app.run(signals) => drain_result(outcome),
        shown = show => {
            shown.context("cannot read keys")?;
            drain_result(Outcome::Drained)
        }
    }
}

/// Draws the screen and takes keys; does not return unless keys cannot be read.
async fn show_screen(terminal: Terminal, facts: &Facts, demo: &Demo) -> std::io::Result<()> {
    let started = Instant::now();
    let mut keys = terminal.keys()?;
    let mut redraw = interval(REDRAW);
    loop {
        tokio::select! {
            _ = redraw.tick() => {}
            Some(key) = keys.recv() => take_key(key, &mut keys, demo),
        }
        terminal.draw(&facts.screen(&demo.totals(), started.elapsed()));
    }
}

/// Does what the key asks for, and drops further keys that have arrived already.
fn take_key(key: u8, keys: &mut mpsc::UnboundedReceiver<u8>, demo: &Demo) {
    if matches!(key, b'f' | b'F') {
        demo.cut_off();
    }
    while keys.try_recv().is_ok() {}
}

async fn print_lines(facts: &Facts, demo: &Demo) -> std::io::Result<()> {
    print(&facts.introduction());
    loop {
        tokio::time::sleep(REPORT).await;
        print(&facts.line(&demo.totals()));
    }
}
