//! The composition roots of `kubefan sim` and `kubefan demo`, and the contract tests.

mod demo;
mod simulated;

#[cfg(test)]
mod tests;

pub use demo::DemoApp;
pub use simulated::SimulatedApp;
