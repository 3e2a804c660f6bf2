//! The configuration as it takes effect, and as it is printed.

use std::path::Path;

use serde_json::Value;

use crate::telemetry;

use super::GlobalArgs;
use super::LogFormat;
use super::Problems;
use super::ServeArgs;
use super::ServeConfig;
use super::file;
use super::serve;
use super::settings::Settings;
use super::sources;
use super::sources::SETTINGS;
use super::sources::Sources;

/// Everything that `kubefan serve` is told: defaults, file, environment, flags; the later wins.
#[derive(Debug)]
pub struct ResolvedConfig {
    /// What is served.
    pub serve: ServeConfig,
    /// What is logged.
    pub log: telemetry::LogConfig,
    pub(super) settings: Settings,
    sources: Sources,
}

/// Checks a configuration file alone, without environment and flags.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn check_file(path: &Path) -> Result<(), Problems> {
    let mut problems = Vec::new();
    let file = file::read(path, &mut problems);
    let sources = Sources::of_file(path, &file.positions);
    serve::check(&file.settings, &sources, &mut problems);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Problems::new(problems)),
    }
}

/// The JSON Schema of the configuration file, ending in a newline.
pub fn schema() -> String {
    format!("{:#}\n", schemars::schema_for!(Settings).as_value())
}

// === impl ResolvedConfig ===

impl ResolvedConfig {
    /// Reads the file, if there is one, and lays environment and flags over it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with any of them.
    pub fn new(global: &GlobalArgs, serve: &ServeArgs) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let (settings, sources) = sources::collect(global, serve, &mut problems);
        let Some(serve) = serve::check(&settings, &sources, &mut problems) else {
            return Err(Problems::new(problems));
        };
        let log = telemetry::LogConfig {
            verbosity: settings.log.verbosity,
            is_quiet: false,
            format: match settings.log.format {
                LogFormat::Text => telemetry::LogFormat::Text,
                LogFormat::Json => telemetry::LogFormat::Json,
            },
        };
        Ok(Self {
            serve,
            log,
            settings,
            sources,
        })
    }

    /// A configuration file that says the same in the working directory, with a comment on each
    /// value's origin.
    ///
    /// # Errors
    ///
    /// When a path is not UTF-8.
    pub fn to_yaml(&self) -> Result<String, serde_json::Error> {
        let settings = serde_json::to_value(&self.settings)?;
        let mut yaml = String::new();
        let mut open: Vec<&str> = Vec::new();
        for setting in &SETTINGS {
            let mut sections: Vec<_> = setting.key.split('.').collect();
            let name = sections.pop().unwrap_or_default();
            let common = open.iter().zip(&sections).take_while(|(a, b)| a == b);
            for (depth, section) in sections.iter().enumerate().skip(common.count()) {
                yaml += &format!("{}{section}:\n", "  ".repeat(depth));
            }
            let pointer = format!("/{}", setting.key.replace('.', "/"));
            // JSON, which is YAML too, and one line whatever is in it.
            let value = settings.pointer(&pointer).unwrap_or(&Value::Null);
            let origin = self.sources.origin(setting.key);
            let indent = "  ".repeat(sections.len());
            yaml += &format!("{indent}{name}: {value} # {origin}\n");
            open = sections;
        }
        Ok(yaml)
    }
}
