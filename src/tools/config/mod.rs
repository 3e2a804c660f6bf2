//! The flags of `kubefan sim`, `demo` and `load`, checked and turned into configurations.

mod args;
mod demo;
mod load;
mod load_args;
mod sim;

pub use args::{DemoArgs, SimArgs};
pub use demo::DemoConfig;
pub use load::LoadConfig;
pub use load_args::{LoadArgs, LoadFormat};
pub use sim::SimConfig;
