//! The bill: what each client uses, what it saves the API server, and what it should change.
//!
//! ```text
//! estimate/   what a read would have cost the API server: seats, CPU time
//! cpu         CPU time by samples
//! ```

mod cpu;
pub mod estimate;

pub use cpu::{CpuAccount, MeasuredBody, measured, process_time};
