//! The bill: what each client uses, what it saves the API server, and what it should change.
//!
//! ```text
//! estimate/   what a read would have cost the API server: seats, CPU time
//! ```

pub mod estimate;
