//! Prints Tables: the cells that a kube-apiserver computes from an object's JSON.
//!
//! All functions are pure: the current time, which ages depend on, is an argument. The expected
//! cells were recorded from real API servers and are in `tests/golden/table`, with a folder for
//! each minor version of Kubernetes.

mod cells;
mod clock;
mod column;
mod comparison;
mod custom;
mod include_object;
mod json_path;
mod kept_rows;
mod kinds;
mod part;
mod printed_row;
mod printer;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub use cells::go_number::put_json;
pub use clock::Clock;
pub use column::ColumnDefinition;
pub use include_object::IncludeObject;
pub use kept_rows::{KeptRows, RowMemory};
pub use printer::Printer;
pub use view::TableView;
pub(super) use view::{Row, RowKind};
pub use writer::{RowObject, TableWriter};
