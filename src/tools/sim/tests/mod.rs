//! Tests of the simulator through its HTTP interface.

mod faults;
mod support;
mod verbs;
