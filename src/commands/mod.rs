//! The command line and its subcommands, one file each.

mod args;
mod config;
mod kubeconfig;
mod serve;

use std::process::ExitCode;

use crate::process::Error;

pub use args::Args;
pub use args::Command;
pub use args::ConfigCheckArgs;
pub use args::ConfigCommand;
pub use args::KubeconfigArgs;

/// A usage fault, as in sysexits.h.
const USAGE_EXIT_CODE: u8 = 64;

/// Does what the process' command line says. Exit code: 0 done, 1 failed, 64 usage.
pub fn run() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let is_usage_error = error.use_stderr();
            // Nothing is left to tell it to when the terminal is gone.
            let _ = error.print();
            return if is_usage_error {
                ExitCode::from(USAGE_EXIT_CODE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match &args.command {
        Command::Serve(serve) => serve::serve(&args.global, serve),
        Command::Tools(tool) => tool.run(&args.global),
        Command::Kubeconfig(kubeconfig) => kubeconfig::kubeconfig(kubeconfig),
        Command::Config(config) => config::config(&args.global, config),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Usage(problems)) => {
            eprintln!("error: {problems}\nkubefan --help says what can be given");
            ExitCode::from(USAGE_EXIT_CODE)
        }
        Err(Error::Failed(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
