//! Prints Tables: the cells that a kube-apiserver computes from an object's JSON.
//!
//! All functions are pure: the current time, which ages depend on, is an argument. The expected
//! cells were recorded from a real API server and are in `tests/golden/table`.

mod age;
mod column;
mod custom;
mod go_number;
mod json_path;
mod kinds;
mod printer;
mod value;
mod writer;

#[cfg(test)]
mod tests;

pub use column::ColumnDefinition;
pub use go_number::put_json;
pub use printer::Printer;
pub use writer::IncludeObject;
pub use writer::ListMetadata;
pub use writer::RowObject;
pub use writer::TableWriter;
