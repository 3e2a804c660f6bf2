//! JSONPath: the part of it that columns of custom resources are written in.

mod eval;
mod path;

pub(super) use path::JsonPath;
