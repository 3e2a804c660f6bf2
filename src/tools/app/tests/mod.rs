//! Tests that run all of kubefan against the simulator.

mod contract;
