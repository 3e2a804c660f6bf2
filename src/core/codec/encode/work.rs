//! Work: what it takes to make the bytes of an object.

use crate::api::Object;

/// The work that it takes to make the bytes of an object for an answer, besides copying them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The bytes are those of the cache.
    None,
    /// The object's metadata is converted.
    Converted,
    /// The object's row of a Table is printed.
    Printed,
}

impl Work {
    /// Returns the units of a task's budget that the work on `object` takes, where one unit is the
    /// work of sending one byte (see `CoopBudget`).
    pub fn units(self, object: &Object) -> usize {
        let per_byte = match self {
            Self::None => 0,
            Self::Converted => 4,
            Self::Printed => 8,
        };
        per_byte * object.body.len()
    }
}
