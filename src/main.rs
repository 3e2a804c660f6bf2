//! Arguments, configuration, the command, and its exit code: 0 done, 1 failed, 64 usage.

use std::process::ExitCode;

use kubefan::commands;
use kubefan::config::Args;
use kubefan::config::Command;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A usage fault, as in sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let is_fault = error.use_stderr();
            // Nothing is left to tell it to when the terminal is gone.
            let _ = error.print();
            return if is_fault {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let outcome = match &args.command {
        Command::Serve(serve) => commands::serve(&args, serve),
        Command::Demo(demo) => commands::demo(&args, demo),
        Command::Sim(sim) => commands::sim(&args, sim),
        Command::Load(load) => commands::load(&args, load),
        Command::Kubeconfig(kubeconfig) => commands::kubeconfig(kubeconfig),
        Command::Config(config) => commands::config(&args, config),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(commands::Error::Usage(faults)) => {
            eprintln!("error: {faults}\nkubefan --help says what can be given");
            ExitCode::from(USAGE)
        }
        Err(commands::Error::Failed(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
