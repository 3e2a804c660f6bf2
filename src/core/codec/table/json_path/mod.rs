//! The subset of JSONPath that the columns of custom resources use.

mod eval;
mod path;

pub(super) use path::JsonPath;
