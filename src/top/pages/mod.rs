//! The pages of the admin API, as far as `kubefan top` shows them.
//!
//! Another version of kubefan may have further fields, or lack some. So every field has a default,
//! and each kind of page may be absent.
//!
//! ```text
//! snapshot  what the stream of snapshots has
//! bill      what each client uses, and the advice
//! reading   the pages at one time, as JSON and with their types
//! feed      reads the pages of a kubefan again and again
//! ```

mod bill;
mod feed;
mod reading;
#[cfg(test)]
pub(crate) mod samples;
mod snapshot;

pub(crate) use bill::{AdviceItem, AdvicePage, Bill, Client, Numbers, Operation, Saved, Slow};
pub(crate) use feed::{Feed, Update, one_line};
pub(crate) use reading::{Page, Pages, Reading};
pub(crate) use snapshot::{
    Cache, CacheFreshness, CacheId, Caches, Connection, Snapshot, resource_name,
};
