//! The effective configuration, and how it is printed.

use std::path::Path;

use kubefan_core::telemetry;
use schemars::Schema;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::Value;

use super::all_settings::{Declared, SETTINGS, Setting};
use super::origin::Origin;
use super::settings::Settings;
use super::sources::Sources;
use super::{Problems, ServeArgs, ServeConfig, serve, sources};
use crate::server::{EffectiveSetting, SettingOrigin};

/// The effective configuration of `kubefan serve`: defaults, overridden by the file, then by
/// environment variables, then by flags.
#[derive(Debug)]
pub struct ResolvedConfig {
    /// The settings of the server and of each room.
    pub serve: ServeConfig,
    /// The settings of the log.
    pub log: telemetry::LogConfig,
    pub(super) settings: Settings,
    sources: Sources,
}

/// Checks only a configuration file, without environment variables and flags. Variables that the
/// file refers to need not be set.
///
/// # Errors
///
/// All mistakes in the file.
pub fn check_file(path: &Path) -> Result<(), Problems> {
    let mut problems = Vec::new();
    let (settings, sources) = sources::read(Some(path), None, &mut problems);
    // The environment variables may be set only on another machine.
    let placeholder = |_: &str| Some("x".to_owned());
    serve::check(&settings, &sources, &placeholder, &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Problems::new(problems))
    }
}

/// Returns the JSON Schema of the configuration file, with a newline at the end.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Settings);
    RecursiveTransform(describe_values).transform(&mut schema);
    format!("{:#}\n", schema.as_value())
}

/// Adds the unit and the range to the description of a property, and removes the attributes that
/// only this program reads.
fn describe_values(schema: &mut Schema) {
    if schema.as_object_mut().is_none() {
        return;
    }
    let declared = Declared::of(schema.as_value());
    let mut sentences = vec![declared.description.clone()];
    sentences.extend(declared.unit().map(str::to_owned));
    sentences.extend(declared.notes());
    if let Some(description) = schema.get_mut("description") {
        *description = sentences.join(" ").into();
    }
    let properties = schema.ensure_object();
    properties.retain(|name, _| !name.starts_with("x-"));
}

/// Returns the kind of `origin`, and its place: the file and line, the variable or the flag.
fn shown_origin(origin: &Origin) -> (SettingOrigin, Option<String>) {
    match origin {
        Origin::Default => (SettingOrigin::Default, None),
        Origin::Environment(variable) => (SettingOrigin::Environment, Some(variable.clone())),
        Origin::Flag(flag) => (SettingOrigin::Flag, Some(flag.clone())),
        Origin::File(path, position) => {
            let line = position.map_or(String::new(), |position| format!(":{}", position.line));
            let place = format!("{}{line}", path.display());
            (SettingOrigin::File, Some(place))
        }
    }
}

// === impl ResolvedConfig ===

impl ResolvedConfig {
    /// Reads the file that `--config` names, if any, and overrides it by environment variables and
    /// flags.
    ///
    /// # Errors
    ///
    /// All mistakes in the file, the environment variables and the flags.
    pub fn new(args: &ServeArgs) -> Result<Self, Problems> {
        let mut problems = Vec::new();
        let variable = |name: &str| std::env::var(name).ok();
        let file = args.config.as_deref();
        let (settings, sources) = sources::read(file, Some(&args.given), &mut problems);
        let Some(serve) = serve::check(&settings, &sources, &variable, &mut problems) else {
            return Err(Problems::new(problems));
        };
        let log = telemetry::LogConfig {
            verbosity: settings.log.verbosity,
            is_quiet: false,
            format: settings.log.format.into(),
        };
        Ok(Self {
            serve,
            log,
            settings,
            sources,
        })
    }

    /// Returns the keys of the settings that differ from those of `other`: first the keys of
    /// settings that a running kubefan can change, and then all others.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn changes(
        &self,
        other: &Self,
    ) -> Result<(Vec<&'static str>, Vec<&'static str>), serde_json::Error> {
        let (ours, theirs) = (
            serde_json::to_value(&self.settings)?,
            serde_json::to_value(&other.settings)?,
        );
        let differs = |setting: &&Setting| {
            let pointer = setting.pointer();
            ours.pointer(&pointer) != theirs.pointer(&pointer)
        };
        let (live, others): (Vec<_>, Vec<_>) = SETTINGS
            .iter()
            .filter(differs)
            .partition(|setting| setting.declared.x_live);
        let keys = |settings: Vec<&'static Setting>| {
            let keys = settings.into_iter().map(|setting| setting.key.as_str());
            keys.collect()
        };
        Ok((keys(live), keys(others)))
    }

    /// Returns the settings that a kubefan uses which was started with `started` and has read this
    /// configuration later: those of this one that need no restart, and the others of `started`.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn in_use(&self, started: &Self) -> Result<Vec<EffectiveSetting>, serde_json::Error> {
        let values = serde_json::to_value(&self.settings)?;
        let started_values = serde_json::to_value(&started.settings)?;
        let settings = SETTINGS.iter().map(|setting| {
            let pointer = setting.pointer();
            let value = |values: &Value| values.pointer(&pointer).cloned().unwrap_or_default();
            let (new, old) = (value(&values), value(&started_values));
            let needs_restart = !setting.declared.x_live;
            let waits_for_restart = needs_restart && new != old;
            let (value, sources) = if needs_restart {
                (old, &started.sources)
            } else {
                (new, &self.sources)
            };
            let (origin, place) = shown_origin(sources.origin(&setting.key));
            EffectiveSetting {
                key: setting.key.clone(),
                value,
                origin,
                place,
                needs_restart,
                waits_for_restart,
            }
        });
        Ok(settings.collect())
    }

    /// Prints the effective configuration as a configuration file, with a comment on the origin of
    /// each value. Relative paths in it are relative to the working directory.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn to_yaml(&self) -> Result<String, serde_json::Error> {
        let settings = serde_json::to_value(&self.settings)?;
        let mut yaml = String::new();
        let mut open: Vec<&str> = Vec::new();
        for setting in SETTINGS.iter() {
            let mut sections: Vec<_> = setting.key.split('.').collect();
            let name = sections.pop().unwrap_or_default();
            let common = open.iter().zip(&sections).take_while(|(a, b)| a == b);
            for (depth, section) in sections.iter().enumerate().skip(common.count()) {
                yaml += &format!("{}{section}:\n", "  ".repeat(depth));
            }
            // The value is printed as JSON. JSON is also YAML, and here always one line.
            let value = settings.pointer(&setting.pointer());
            let value = value.unwrap_or(&Value::Null);
            let origin = self.sources.origin(&setting.key);
            let indent = "  ".repeat(sections.len());
            yaml += &format!("{indent}{name}: {value} # {origin}\n");
            open = sections;
        }
        Ok(yaml)
    }
}
