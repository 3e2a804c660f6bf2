//! What a test showed: the report, and the forms in which people read it.

pub(super) mod page;
pub(super) mod plot;
pub(super) mod report;
pub(super) mod table;
