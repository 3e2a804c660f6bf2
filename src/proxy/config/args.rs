//! The flags and environment variables of `kubefan serve` and the global flags, which clap parses.
//! They are built from the settings. Their values stay text here; `reader` reads them.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, ValueEnum, ValueHint,
    value_parser,
};

use super::LogFormat;
use super::all_settings::{SETTINGS, Setting, SettingKind};
use super::origin::Origin;

const CONFIG: &str = "config";
const LOG_FORMAT: &str = "log.format";
const LOG_VERBOSITY: &str = "log.verbosity";
const AFTER_HELP: &str = "The configuration file has a key for each flag: see docs/settings.md.";

/// Flags that every subcommand has: those of the log.
#[derive(Clone, Debug)]
pub struct GlobalArgs {
    /// How often `-v` is given.
    pub verbose: u8,
    /// Format of the log lines.
    pub log_format: LogFormat,
}

/// The flags and environment variables of `kubefan serve`, as they are given. They are not checked.
#[derive(Clone, Debug)]
pub struct ServeArgs {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The settings that flags and variables set.
    pub(super) given: Vec<Given>,
}

/// A setting that a flag or an environment variable sets.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) setting: &'static Setting,
    pub(super) origin: Origin,
    /// The value; only a list may have several.
    pub(super) values: Vec<String>,
}

// === impl GlobalArgs ===

impl Args for GlobalArgs {
    fn augment_args(command: Command) -> Command {
        let settings = SETTINGS.iter().filter(|setting| is_global(setting));
        command.args(settings.map(|setting| setting.argument().global(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GlobalArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let format = matches.get_one::<String>(LOG_FORMAT);
        let format = format.and_then(|format| LogFormat::from_str(format, false).ok());
        Ok(Self {
            verbose: matches.get_count(LOG_VERBOSITY),
            log_format: format.unwrap_or(LogFormat::Text),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn is_global(setting: &Setting) -> bool {
    [LOG_FORMAT, LOG_VERBOSITY].contains(&setting.key.as_str())
}

// === impl ServeArgs ===

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let help = Arg::new("help")
            .short('h')
            .long("help")
            .action(ArgAction::HelpShort)
            .help("Print the most used flags");
        let help_all = Arg::new("help-all")
            .long("help-all")
            .action(ArgAction::HelpLong)
            .help("Print all flags");
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("FILE")
            .env("KUBEFAN_CONFIG")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Configuration file (YAML); environment variables and the other flags override it",
            );
        let settings = SETTINGS.iter().filter(|setting| !is_global(setting));
        command
            .disable_help_flag(true)
            .args([config, help, help_all])
            .args(settings.map(Setting::argument))
            .after_help(AFTER_HELP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = SETTINGS.iter().filter_map(|setting| setting.given(matches));
        Ok(Self {
            config: matches.get_one(CONFIG).cloned(),
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

// === impl Setting ===

impl Setting {
    /// Returns the flag for clap. Its id is the setting's key.
    fn argument(&'static self) -> Arg {
        let arg = Arg::new(self.key.as_str())
            .long(self.flag.long())
            .help(self.short_help())
            .long_help(self.long_help())
            .help_heading(self.heading.as_str())
            .hide_short_help(!self.declared.x_help)
            .env(self.declared.x_variable.as_deref())
            .short(self.flag.short);
        let Some(value) = self.flag.value.as_deref() else {
            return arg.action(ArgAction::Count);
        };
        let arg = arg.value_name(value);
        match &self.kind {
            SettingKind::Boolean => arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(PossibleValuesParser::new(["true", "false"]))
                .hide_possible_values(true),
            SettingKind::Words(words) => {
                arg.value_parser(PossibleValuesParser::new(words.iter().map(String::as_str)))
            }
            SettingKind::List => arg.action(ArgAction::Append).value_delimiter(','),
            SettingKind::Number | SettingKind::Text => arg
                .value_parser(NonEmptyStringValueParser::new())
                .value_hint(self.is_path().then_some(ValueHint::AnyPath)),
        }
    }

    /// Returns the value if a flag or variable sets it.
    fn given(&'static self, matches: &ArgMatches) -> Option<Given> {
        let id = self.key.as_str();
        let origin = match (matches.value_source(id)?, &self.declared.x_variable) {
            (ValueSource::CommandLine, _) => Origin::Flag(self.flag.name.clone()),
            (ValueSource::EnvVariable, Some(variable)) => Origin::Environment(variable.clone()),
            _ => return None,
        };
        let values = match &self.flag.value {
            Some(_) => matches
                .get_many(id)
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            None => vec![matches.get_count(id).to_string()],
        };
        Some(Given {
            setting: self,
            origin,
            values,
        })
    }
}
