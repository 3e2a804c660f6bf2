//! `kubefan top`: shows what a running kubefan does, on a screen, as tables or as JSON.

use std::io;
use std::io::IsTerminal;
use std::pin::pin;

use anyhow::anyhow;
use clap::Args;
use kubefan_core::telemetry::visible_json;
use kubefan_proxy::admin_client;
use kubefan_proxy::admin_client::{AdminArgs, AdminClient};
use kubefan_proxy::config::GlobalArgs;
use kubefan_proxy::process::{Error, block_on_few_threads, install_log, write_to_stdout};
use tokio::sync::mpsc;

use crate::pages::{Feed, Reading, Update, one_line};
use crate::tables::report;
use crate::{screen, text};

/// Flags of `kubefan top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Which kubefan, and with which credentials.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Print the tables once; the default if standard input or output is not a terminal
    #[arg(long)]
    pub once: bool,

    /// Print JSON: a line each second, or one line with --once
    #[arg(long)]
    pub json: bool,
}

/// Shows what a running kubefan does: until a key or a signal ends it, or once.
///
/// # Errors
///
/// [`Error::Usage`] for mistakes in the flags; [`Error::Failed`] if the credentials or the terminal
/// can't be used, or if kubefan shows nothing and there is no screen that could say so.
pub fn top(global: &GlobalArgs, args: &TopArgs) -> Result<(), Error> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let has_screen = has_terminal && !args.once && !args.json;
    // Lines of the log would hide parts of the screen.
    if !has_screen || !io::stderr().is_terminal() {
        install_log(global, true)?;
    }
    let args = args.clone();
    block_on_few_threads(async move {
        // Before the screen, because an exec plugin may ask something.
        let client = AdminClient::connect(&args.admin).await?;
        if has_screen {
            return screen::run(client).await.map_err(Error::from);
        }
        match (args.json, args.once) {
            (true, false) => print_lines(client).await,
            (is_json, _) => print_once(client, is_json).await,
        }
    })
}

/// Prints what kubefan shows at one time.
async fn print_once(client: AdminClient, is_json: bool) -> Result<(), Error> {
    let url = client.url().to_owned();
    let reading = Feed::new(client).next().await.map_err(failed)?;
    let printed = match is_json {
        true => json_line(reading),
        false => report(&reading.pages().map_err(failed)?, &url),
    };
    write(&printed).map(drop)
}

/// Prints a line of JSON for each snapshot until nothing reads it. Waits for a kubefan that was
/// there and is away.
async fn print_lines(client: AdminClient) -> Result<(), Error> {
    let (sender, mut updates) = mpsc::channel(1);
    let mut feeding = pin!(Feed::new(client).run(sender));
    let mut has_printed = false;
    loop {
        let update = tokio::select! {
            () = &mut feeding => return Ok(()),
            Some(update) = updates.recv() => update,
        };
        match update {
            Update::Reading(reading) => {
                if !write(&json_line(*reading))? {
                    return Ok(());
                }
                has_printed = true;
            }
            Update::Failed(problem) => {
                let problem = text::harmless(&problem);
                if !has_printed {
                    return Err(anyhow!(problem).into());
                }
                tracing::warn!(%problem, "no snapshot, trying again");
            }
        }
    }
}

fn json_line(reading: Reading) -> String {
    visible_json(&reading.into_json().to_string()).into_owned() + "\n"
}

/// Writes to standard output. Returns false if nothing reads it any more.
fn write(printed: &str) -> Result<bool, Error> {
    match write_to_stdout(printed) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow!(error)
            .context("cannot write to standard output")
            .into()),
    }
}

fn failed(error: admin_client::Error) -> Error {
    anyhow!(text::harmless(&one_line(&error))).into()
}
