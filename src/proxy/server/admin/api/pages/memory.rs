//! The page of the memory.

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::resident_memory;
use crate::server::admin::api::page::{Page, now};
use crate::server::admin::api::sources::{ReadCache, Sources};
use crate::server::startup::Started;

/// The memory of the process, by its use.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Memory {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The resident set of the process; absent if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    /// What the process may use: the memory of the machine, or less if its control group has a
    /// limit.
    available_bytes: u64,
    /// What the caches hold; absent before the API server has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    caches: Option<CacheMemory>,
    /// What is held for clients, by kind; at most limitBytes, and a quarter more in buffers.
    readers: Vec<KindOfBytes>,
    /// The limit of what is held for clients (limits.memory).
    limit_bytes: u64,
    /// The limit of what is charged to one connection (limits.connectionMemory).
    connection_limit_bytes: u64,
    /// What is kept beside the caches and charged to no connection, by kind.
    kept: Vec<KeptBytes>,
}

/// The memory of all caches.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CacheMemory {
    /// The number of caches.
    caches: usize,
    /// Objects in the caches.
    objects: usize,
    /// Bytes of the objects.
    object_bytes: usize,
    /// Bytes of the events in the event logs.
    event_log_bytes: usize,
}

/// Bytes of one kind.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KindOfBytes {
    /// The kind, as in the metric kubefan_reader_memory_bytes.
    kind: &'static str,
    /// The bytes.
    bytes: u64,
}

/// Bytes of one kind, with their limit.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KeptBytes {
    /// The kind, as in the metric kubefan_kept_memory_bytes.
    kind: &'static str,
    /// The bytes.
    bytes: usize,
    /// The upper limit of the bytes; of the kind queue, in each cache.
    limit_bytes: usize,
}

impl Page for Memory {
    const NAME: &'static str = "memory";
    const SUMMARY: &'static str =
        "The memory of the process by kind, with the limits: caches, clients, what clients share.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let caches = sources.read_caches().ok();
        Ok(Self::of(sources, caches.as_deref()))
    }
}

impl Memory {
    /// Reads the page, with the memory of `caches`: `None` before the API server has answered.
    pub(super) fn of(sources: &Sources, caches: Option<&[ReadCache]>) -> Self {
        let (ledger, started) = (&sources.ledger, sources.started().ok());
        let readers = ledger.usage().into_iter();
        let kept = started
            .zip(caches)
            .map(|(started, caches)| kept(started, sources, caches));
        Self {
            time: now(),
            resident_bytes: resident_memory(),
            available_bytes: sources.available_bytes,
            caches: caches.map(CacheMemory::of),
            readers: readers
                .map(|(kind, bytes)| KindOfBytes { kind, bytes })
                .collect(),
            limit_bytes: ledger.limits().memory,
            connection_limit_bytes: ledger.limits().connection_memory,
            kept: kept.unwrap_or_default(),
        }
    }
}

impl CacheMemory {
    fn of(caches: &[ReadCache]) -> Self {
        let mut sum = Self {
            caches: caches.len(),
            ..Self::default()
        };
        for ReadCache { stats, .. } in caches {
            sum.objects += stats.objects;
            sum.object_bytes += stats.bytes;
            sum.event_log_bytes += stats.log_bytes;
        }
        sum
    }
}

/// Returns what is kept beside the caches.
fn kept(started: &Started, sources: &Sources, caches: &[ReadCache]) -> Vec<KeptBytes> {
    let server = &started.server.inner;
    let informers = &server.caches.informers;
    let queues = caches.iter().map(|cache| cache.stats.queue_bytes);
    let (bridges, bridges_limit) = informers.bridge_limits().buffered_bytes();
    let mut kept = server.budgets.usage();
    kept.extend(server.caches.access.kept_bytes());
    kept.push(("queue", queues.sum(), informers.queue_limit()));
    kept.push(("bridge", bridges, bridges_limit));
    kept.extend(sources.bill.as_ref().map(|bill| bill.kept_bytes()));
    let kept = kept.into_iter();
    kept.map(|(kind, bytes, limit_bytes)| KeptBytes {
        kind,
        bytes,
        limit_bytes,
    })
    .collect()
}
