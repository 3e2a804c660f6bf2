//! Configuration file, environment and command line, checked into every room's `Config`.
//!
//! `args` is the command line and `file` the file as given, `sources` lays one over the other into
//! `settings`, and `serve` checks those against each other. All faults are told at once.

mod address;
mod args;
mod args_load;
mod demo;
mod effective;
mod fault;
mod file;
mod freshness_rule;
mod load;
mod node;
mod serve;
mod settings;
mod sim;
mod sources;
mod units;

#[cfg(test)]
mod tests;

pub use args::Args;
pub use args::Command;
pub use args::ConfigCheckArgs;
pub use args::ConfigCommand;
pub use args::DemoArgs;
pub use args::Given;
pub use args::KubeconfigArgs;
pub use args::LogFormat;
pub use args::ServeArgs;
pub use args::SimArgs;
pub use args_load::LoadArgs;
pub use args_load::LoadFormat;
pub use demo::DemoConfig;
pub use effective::Effective;
pub use effective::check_file;
pub use effective::schema;
pub use fault::Fault;
pub use fault::Faults;
pub use freshness_rule::FreshnessRule;
pub use load::LoadConfig;
pub use serve::Resources;
pub use serve::ServeConfig;
pub use serve::Tls;
pub use serve::default_tls_dir;
pub use sim::SimConfig;
