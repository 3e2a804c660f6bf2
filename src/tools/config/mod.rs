//! The command lines of the instruments, checked into their configurations.

mod args;
mod demo;
mod load;
mod load_args;
mod sim;

pub use args::DemoArgs;
pub use args::SimArgs;
pub use demo::DemoConfig;
pub use load::LoadConfig;
pub use load_args::LoadArgs;
pub use load_args::LoadFormat;
pub use sim::SimConfig;
