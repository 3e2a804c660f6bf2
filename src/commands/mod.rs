//! The command line and its subcommands, one file each.

mod args;
mod completion;
mod config;
mod credentials;
mod kubeconfig;
mod serve;
mod version;
mod why;

use std::process::ExitCode;

use args::{Args, Command};
use kubefan_proxy::process::Error;

/// The exit code for a mistake in the command line or the configuration: `EX_USAGE` of sysexits.h.
const USAGE_EXIT_CODE: u8 = 64;

/// Parses the command line of this process and runs the subcommand. The exit code is 0 for success,
/// 1 for a failure, and 64 for a mistake in the command line or the configuration.
pub(crate) fn run() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let is_usage_error = error.use_stderr();
            // Printing fails only if the output is closed. Then there is no other place to
            // report the failure.
            let _ = error.print();
            return if is_usage_error {
                ExitCode::from(USAGE_EXIT_CODE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    for warning in Args::environment_warnings() {
        eprintln!("warning: {warning}");
    }
    let outcome = match &args.command {
        Command::Serve(serve) => serve::serve(serve),
        #[cfg(feature = "tools")]
        Command::Tools(tool) => tool.run(&args.global),
        #[cfg(feature = "top")]
        Command::Top(top) => kubefan_top::top(&args.global, top),
        Command::Kubeconfig(kubeconfig) => kubeconfig::kubeconfig(kubeconfig),
        Command::Config(config) => config::config(config),
        Command::Why(why) => why::why(why),
        Command::Version { output } => version::version(*output),
        Command::Completion { shell } => {
            completion::completion(*shell);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Usage(problems)) => {
            eprintln!("error: {problems}\nsee kubefan {} --help", args.subcommand);
            ExitCode::from(USAGE_EXIT_CODE)
        }
        Err(Error::Failed(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
