//! Tables: the cells that a kube-apiserver prints for an object, from the object's JSON.
//!
//! Everything here is a pure function: the moment that ages are counted to is an argument. What the
//! cells are was taken from the answers of a real server, which `tests/golden/table` keeps.

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
