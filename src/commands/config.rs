//! `kubefan config check`, `show` and `schema`.

use anyhow::Context;
use kubefan_proxy::config;
use kubefan_proxy::config::ResolvedConfig;
use kubefan_proxy::process::{Error, write_to_stdout};

use super::args::ConfigCommand;

/// Checks a configuration file, or prints the configuration or its schema on standard output.
///
/// # Errors
///
/// [`Error::Usage`] with all mistakes in the configuration; [`Error::Failed`] if standard output
/// cannot be written.
pub(super) fn config(command: &ConfigCommand) -> Result<(), Error> {
    let text = match command {
        ConfigCommand::Check { file } => {
            config::check_file(file)?;
            format!("{}: no problems\n", file.display())
        }
        ConfigCommand::Show(args) => ResolvedConfig::new(args)?
            .to_yaml()
            .context("cannot print the configuration")?,
        ConfigCommand::Schema => config::schema(),
    };
    write_to_stdout(&text).context("cannot write to standard output")?;
    Ok(())
}
