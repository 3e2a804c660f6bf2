//! The composition roots of the simulator and of the demo.

mod demo;
mod simulated;

#[cfg(test)]
mod tests;

pub use demo::DemoApp;
pub use simulated::SimulatedApp;
