//! Columns and cells of the built-in kinds.

mod access;
mod autoscaling;
mod catalog;
mod control;
mod core_kinds;
mod devices;
mod network;
mod node;
mod pod;
mod storage;
mod workload;

#[cfg(test)]
pub(super) use catalog::printed;
pub(super) use catalog::{Cells, built_in, default_columns};
pub(super) use core_kinds::created_at;
