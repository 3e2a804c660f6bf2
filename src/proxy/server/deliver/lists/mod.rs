//! Long lists that are made once for several clients: as gzip, or as the text of lists of metadata and
//! of Tables.

mod compression;
mod gzip_stream;
mod kept_lists;
mod list_cache;
mod list_text;
mod making;

pub(crate) use kept_lists::{ListBytes, ListInfo, SharedList};
pub(crate) use list_cache::{Begun, ListCache, ListCounters};
pub(crate) use making::{Making, Unshared};
