//! Tables: the cells that a kube-apiserver prints for an object, from the object's JSON.
//!
//! Everything here is a pure function: the moment that ages are counted to is an argument. What the
//! cells are was taken from the answers of a real server, which `tests/golden/table` keeps.

mod age;
mod catalog;
mod column;
mod core_kinds;
mod custom;
mod go_number;
mod json_path;
mod json_path_eval;
mod network;
mod node;
mod pod;
mod printer;
mod value;
mod workload;
mod writer;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod writer_tests;

pub use column::ColumnDefinition;
pub use printer::Printer;
pub use writer::IncludeObject;
pub use writer::ListMetadata;
pub use writer::RowObject;
pub use writer::TableWriter;
