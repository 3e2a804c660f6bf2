//! kubefan against the simulator.

mod contract;
