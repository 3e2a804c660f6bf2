//! Combines defaults, file, environment variables and flags into the settings, and records the
//! origin of each. Flags override environment variables, which override the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, Args, Command};

use super::all_settings::SETTINGS;
use super::problem::{Location, Position, Problem};
use super::settings::Settings;
use super::{GlobalArgs, ServeArgs, file};

/// The source of the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf, Option<Position>),
    Environment(String),
    Flag(String),
}

/// The sources of the values of all settings.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Origins by key; a setting without an entry has its default.
    origins: BTreeMap<&'static str, Origin>,
    /// The name of each setting's flag, such as `--listen`, by key, for messages about the setting.
    /// The flag need not be given. Empty if only a file is checked.
    flags: BTreeMap<&'static str, String>,
    /// The positions of all values in the file, by keys such as `cache.resources.0.namespaces`.
    positions: BTreeMap<String, Option<Position>>,
}

/// Overrides the defaults by the file, environment variables and flags. Problems with the file are
/// added to `problems`.
pub(super) fn collect(
    global: &GlobalArgs,
    serve: &ServeArgs,
    problems: &mut Vec<Problem>,
) -> (Settings, Sources) {
    let mut settings = Settings::default();
    let mut sources = Sources::default();
    if let Some(path) = &serve.config {
        let file = file::read(path, problems);
        settings = file.settings;
        sources = Sources::of_file(path, &file.positions);
    }
    let command = GlobalArgs::augment_args(ServeArgs::augment_args(Command::new("serve")));
    for setting in &SETTINGS {
        let mut arguments = command.get_arguments();
        let Some(argument) = arguments.find(|argument| argument.get_id() == setting.field) else {
            continue;
        };
        let flag = format!("--{}", argument.get_long().unwrap_or(setting.field));
        let origin = match global.arg_sources.0.get(setting.field) {
            Some(ValueSource::EnvVariable) => Some(Origin::Environment(variable_of(argument))),
            Some(ValueSource::CommandLine) => Some(Origin::Flag(flag.clone())),
            _ => None,
        };
        if let Some(origin) = origin {
            (setting.set)(&mut settings, global, serve);
            sources.origins.insert(setting.key, origin);
        }
        sources.flags.insert(setting.key, flag);
    }
    (settings, sources)
}

fn variable_of(argument: &Arg) -> String {
    let variable = argument.get_env().unwrap_or_default();
    variable.to_string_lossy().into_owned()
}

// === impl Sources ===

impl Sources {
    /// Returns the origins for the file at `path`, without flags and environment variables. For
    /// each setting that the file contains, `positions` has its position in the file, by key.
    pub(super) fn of_file(path: &Path, positions: &BTreeMap<String, Option<Position>>) -> Self {
        let mut sources = Self {
            positions: positions.clone(),
            ..Self::default()
        };
        for setting in &SETTINGS {
            if let Some(position) = positions.get(setting.key) {
                let origin = Origin::File(path.to_owned(), *position);
                sources.origins.insert(setting.key, origin);
            }
        }
        sources
    }

    /// Returns the origin of the value of the setting `key`.
    pub(super) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// Returns whether `key` was set by a source that has precedence over the source of `other`.
    pub(super) fn overrides(&self, key: &str, other: &str) -> bool {
        let rank = |key| match self.origin(key) {
            Origin::Default => 0,
            Origin::File(..) => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        };
        rank(key) > rank(other)
    }

    /// Returns a problem with a setting. Its location is the position in the file, or the name of
    /// the flag or environment variable that set it.
    pub(super) fn problem(&self, key: &'static str, message: &str) -> Problem {
        match self.origin(key) {
            Origin::File(path, position) => Problem {
                location: Location::File {
                    path: path.clone(),
                    position: *position,
                },
                message: format!("{key}: {message}"),
            },
            _ => Problem {
                location: Location::Named(self.name(key, key)),
                message: message.to_owned(),
            },
        }
    }

    /// Returns a problem like [`Sources::problem`], with the element `index` of the list `key`, or
    /// with its key `part`.
    pub(super) fn problem_in(
        &self,
        key: &'static str,
        (index, part): (usize, Option<&str>),
        message: &str,
    ) -> Problem {
        let place = |key: String| match part {
            Some(part) => format!("{key}.{part}"),
            None => key,
        };
        let mut problem = self.problem(key, message);
        if let Location::File { position, .. } = &mut problem.location {
            let found = self.positions.get(&place(format!("{key}.{index}")));
            *position = found.copied().flatten().or(*position);
            problem.message = format!("{}: {message}", place(key.to_owned()));
        }
        problem
    }

    /// Returns the name of the setting `key` for a message: its environment variable, flag or key,
    /// depending on where it was set. A setting with its default is named by the origin of
    /// `beside`.
    pub(super) fn name(&self, key: &'static str, beside: &'static str) -> String {
        let origin = match self.origin(key) {
            Origin::Default => self.origin(beside),
            explicit => explicit,
        };
        let of_file = matches!(origin, Origin::File(..));
        match (self.origin(key), self.flags.get(key)) {
            (Origin::Environment(variable), _) => variable.clone(),
            (_, Some(flag)) if !of_file => flag.clone(),
            _ => key.to_owned(),
        }
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::File(path, position) => {
                write!(f, "file {}", path.display())?;
                match position {
                    Some(position) => write!(f, ":{}", position.line),
                    None => Ok(()),
                }
            }
        }
    }
}
