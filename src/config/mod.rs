//! Command line and environment, checked into every room's `Config`.

mod args;
mod serve;

pub use args::Args;
pub use args::Command;
pub use args::KubeconfigArgs;
pub use args::LogFormat;
pub use args::ServeArgs;
pub use serve::Fault;
pub use serve::Faults;
pub use serve::Resources;
pub use serve::ServeConfig;
pub use serve::Tls;
pub use serve::default_tls_dir;
