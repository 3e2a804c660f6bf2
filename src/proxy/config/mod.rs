//! The configuration of `kubefan serve`: file, environment variables and flags, checked and turned
//! into each room's `Config`.
//!
//! `settings` declares each setting, and `all_settings` is the list of them. From it, `args` makes
//! the flags and variables that clap parses, with `texts` as their help. `reader` reads the values
//! of the file, which `file` parses, of the variables and of the flags, and checks each one;
//! `sources` combines them. `values` has the types of values. `serve` checks the settings against
//! each other, and `resolved` is the result. All problems are reported together.

pub mod address;
mod all_settings;
mod args;
pub mod environment;
mod file;
mod origin;
mod problem;
mod reader;
mod resolved;
mod serve;
mod settings;
mod sources;
mod texts;
mod values;

#[cfg(test)]
mod tests;

pub use args::{GlobalArgs, ServeArgs};
pub use problem::{Problem, Problems};
pub use resolved::{ResolvedConfig, check_file, schema};
pub use serve::{AdminConfig, AdminTls, Resources, ServeConfig, Tls, default_tls_dir};
pub use settings::LogFormat;
pub use values::freshness_rule::FreshnessRule;
pub use values::network::Network;
pub use values::units::{parse_bytes, parse_duration};

pub use crate::identity::Mode as AuthMode;
