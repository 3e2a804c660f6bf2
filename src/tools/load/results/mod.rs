//! The results of a load test: the report, and its forms as text and HTML.

pub(super) mod environment;
pub(super) mod page;
pub(super) mod plot;
pub(super) mod report;
pub(super) mod table;
pub(super) mod times;
