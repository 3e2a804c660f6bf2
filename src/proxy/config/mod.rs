//! The configuration of `kubefan serve`: file, environment variables and flags, checked and turned
//! into each room's `Config`.
//!
//! `args` parses the command line and the environment, and `file` the file. `all_settings` has the
//! keys and flags, by which `sources` combines them into `settings`. `serve` checks the settings
//! against each other, and `resolved` is the result. All problems are reported together.

pub mod address;
mod admin;
mod all_settings;
mod args;
mod cached_resource;
mod certificate;
pub mod environment;
mod expansion;
mod file;
mod freshness_rule;
mod network;
mod node;
mod problem;
mod resolved;
mod rules;
mod serve;
mod settings;
mod sources;
mod units;

#[cfg(test)]
mod tests;

pub use admin::{AdminConfig, AdminTls};
pub use all_settings::in_sections;
pub use args::{ArgSources, AuthMode, GlobalArgs, LogFormat, ServeArgs, ShardSelectorMode};
pub use freshness_rule::FreshnessRule;
pub use network::Network;
pub use problem::{Problem, Problems};
pub use resolved::{ResolvedConfig, check_file, schema};
pub use serve::{Resources, ServeConfig, Tls, default_tls_dir};
pub use units::{parse_bytes, parse_duration};
