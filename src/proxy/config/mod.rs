//! The configuration of `kubefan serve`: file, environment variables and flags, checked and turned
//! into each room's `Config`.
//!
//! `args` parses the command line and the environment, and `file` parses the file. `all_settings`
//! has the keys and flags of all settings, and `sources` uses them to combine everything into
//! `settings`. `values` has the types of the settings' values. `serve` checks the settings against
//! each other, and `resolved` is the result. All problems are reported together.

pub mod address;
mod all_settings;
mod args;
pub mod environment;
mod file;
mod problem;
mod resolved;
mod serve;
mod settings;
mod sources;
mod values;

#[cfg(test)]
mod tests;

pub use all_settings::in_sections;
pub use args::{ArgSources, AuthMode, GlobalArgs, LogFormat, ServeArgs, ShardSelectorMode};
pub use problem::{Problem, Problems};
pub use resolved::{ResolvedConfig, check_file, schema};
pub use serve::{AdminConfig, AdminTls, Resources, ServeConfig, Tls, default_tls_dir};
pub use values::freshness_rule::FreshnessRule;
pub use values::network::Network;
pub use values::units::{parse_bytes, parse_duration};
