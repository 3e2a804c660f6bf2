//! `kubefan completion`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use kubefan_proxy::process::print;

use super::args::Args;

/// Prints a script on standard output that completes the command line of kubefan in `shell`.
pub(super) fn completion(shell: Shell) {
    let mut command = Args::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script));
}
