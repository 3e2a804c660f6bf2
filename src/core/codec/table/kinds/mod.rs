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

pub(super) use catalog::Cells;
pub(super) use catalog::built_in;
pub(super) use catalog::default_columns;
#[cfg(test)]
pub(super) use catalog::printed;
pub(super) use core_kinds::created_at;
