//! The tables that `kubefan top` shows, made from the pages of the admin API. Pure.
//!
//! ```text
//! table     a table: columns, sorted and filtered rows, the details of each row
//! layout    the widths of columns, and a table as plain text
//! rates     what happened per second between two snapshots
//! summary   the lines above the tables
//! caches, clients, requests, advice   the rows of each view
//! view      the views
//! report    all tables as text
//! ```

mod advice;
mod caches;
mod clients;
mod layout;
mod rates;
mod report;
mod requests;
mod summary;
mod table;
mod view;

pub(crate) use layout::{GAP, shown, widths};
pub(crate) use rates::Rates;
pub(crate) use report::report;
pub(crate) use summary::{Part, counts, state};
pub(crate) use table::{Row, Table, Tone};
pub(crate) use view::{Content, View};

#[cfg(test)]
mod tests;
