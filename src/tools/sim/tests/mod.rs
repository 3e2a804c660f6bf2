//! The simulator as clients meet it.

mod faults;
mod support;
mod verbs;
