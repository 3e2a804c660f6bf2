//! Configuration file, environment and command line, checked into every room's `Config`.
//!
//! `args` is the command line and `file` the file as given, `sources` lays one over the other into
//! `settings`, and `serve` checks those against each other. All problems are told at once.

pub mod address;
mod args;
mod file;
mod freshness_rule;
mod node;
mod problem;
mod resolved;
mod serve;
mod settings;
mod sources;
mod units;

#[cfg(test)]
mod tests;

pub use args::ArgSources;
pub use args::GlobalArgs;
pub use args::LogFormat;
pub use args::ServeArgs;
pub use freshness_rule::FreshnessRule;
pub use problem::Problem;
pub use problem::Problems;
pub use resolved::ResolvedConfig;
pub use resolved::check_file;
pub use resolved::schema;
pub use serve::Resources;
pub use serve::ServeConfig;
pub use serve::Tls;
pub use serve::default_tls_dir;
pub use units::parse_bytes;
pub use units::parse_duration;
