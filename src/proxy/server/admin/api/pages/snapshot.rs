//! A snapshot of several pages, for the stream of events.

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;

use super::caches::Caches;
use super::clients::Clients;
use super::freshness::Freshness;
use super::memory::Memory;
use super::relists::Relists;
use crate::server::admin::api::page::{Page, now};
use crate::server::admin::api::sources::Sources;

/// The last part of the path of the stream.
pub(in crate::server::admin::api) const NAME: &str = "events";
/// The most caches of a snapshot: it is sent each second.
const MOST_CACHES: usize = 100;
/// The most relists, and the most resumed watches, of a snapshot.
const MOST_RECOVERIES: usize = 16;

/// Several pages at one time.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Snapshot {
    /// When the snapshot was made, by RFC 3339.
    time: String,
    /// The version of kubefan.
    version: &'static str,
    /// The page caches.
    caches: Caches,
    /// The page clients.
    clients: Clients,
    /// The page freshness.
    freshness: Freshness,
    /// The page memory.
    memory: Memory,
    /// The page relists.
    relists: Relists,
}

impl Page for Snapshot {
    const NAME: &'static str = NAME;
    const SUMMARY: &'static str =
        "Snapshots of caches, clients, freshness, memory and relists, one per second.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let caches = sources.read_caches()?;
        Ok(Self {
            time: now(),
            version: env!("CARGO_PKG_VERSION"),
            caches: Caches::largest(sources, &caches, MOST_CACHES)?,
            clients: Clients::read(sources)?,
            freshness: Freshness::first(&caches, MOST_CACHES),
            memory: Memory::of(sources, Some(&caches)),
            relists: Relists::newest(sources, MOST_RECOVERIES)?,
        })
    }
}
