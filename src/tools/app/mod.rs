//! The composition roots of `kubefan sim` and `kubefan demo`, and the contract tests.

mod demo;
mod served;
mod simulated;

#[cfg(test)]
mod tests;

pub use demo::Demo;
pub use demo::DemoApp;
pub use demo::Totals;
pub use demo::Views;
pub use served::Served;
pub use served::ServedTotals;
pub use simulated::SimulatedApp;
