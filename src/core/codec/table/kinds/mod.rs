//! Columns and cells of the built-in kinds.

mod access;
mod autoscaling;
mod catalog;
mod control;
mod events;
mod network;
mod node;
mod pod;
mod shows;
mod storage;
mod workload;

#[cfg(test)]
pub(super) use catalog::printed;
pub(super) use catalog::{Cells, built_in, default_cells, default_columns};
