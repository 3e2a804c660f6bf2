//! The composition roots of `kubefan sim` and `kubefan demo`, and the contract tests.

mod demo;
mod served;
mod simulated;

#[cfg(test)]
mod tests;

pub use demo::{Demo, DemoApp, Totals, Views};
pub use simulated::SimulatedApp;
