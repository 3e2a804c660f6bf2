//! `kubefan config check`, `show` and `schema`.

use std::io::Write;

use anyhow::Context;
use kubefan_proxy::config;
use kubefan_proxy::config::ResolvedConfig;
use kubefan_proxy::process::Error;

use super::args::ConfigCommand;

/// Checks a configuration file, or prints the configuration or its schema on standard output.
///
/// # Errors
///
/// [`Error::Usage`] with all mistakes in the configuration; [`Error::Failed`] if standard output
/// cannot be written.
pub(super) fn config(command: &ConfigCommand) -> Result<(), Error> {
    let text = match command {
        ConfigCommand::Check(check) => {
            config::check_file(&check.file)?;
            format!("{}: no problems\n", check.file.display())
        }
        ConfigCommand::Show(args) => ResolvedConfig::new(args)?
            .to_yaml()
            .context("cannot print the configuration")?,
        ConfigCommand::Schema => config::schema(),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")?;
    Ok(())
}
