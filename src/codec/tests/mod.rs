//! The room as a whole.

mod metadata;
mod recorded;
mod scanners;
