//! The limits of connections, requests and memory.

use std::num::NonZeroUsize;

use crate::config::settings::{Limits, Settings};
use crate::config::values::units::ByteSize;
use crate::net::ProxyNetworks;
use crate::server::{UserLimits, WebPageRules};
use crate::{ledger, net, server};

/// The memory for readers and callers, in bytes, for which one more handshake may be pending by
/// default. A pending handshake takes about 30 KiB, so they take an eighth of it, besides.
const MEMORY_PER_HANDSHAKE: u64 = 256 << 10;

/// Returns the limits of the memory that is held for readers and callers.
pub(super) fn memory(limits: &Limits) -> ledger::Limits {
    let bytes = |size: ByteSize| size.0 as u64;
    ledger::Limits::new(
        limits.memory.map(bytes),
        limits.connection_memory.map(bytes),
        bytes(limits.min_body_rate),
    )
}

/// Returns the upper limit of the selections without an index that watches of one cache may have.
pub(super) fn max_unindexed(limits: &Limits) -> usize {
    match limits.max_unindexed_selectors {
        0 => usize::MAX,
        max => max,
    }
}

/// Returns the upper limit of pending handshakes. After a restart, thousands of clients connect at
/// once. If there are more than the limit, new handshakes close those that wait for kubefan.
fn max_pending_handshakes(limits: &Limits) -> NonZeroUsize {
    let least = net::Config::default().max_pending_openings;
    limits.max_pending_handshakes.unwrap_or_else(|| {
        let by_memory = memory(limits).memory / MEMORY_PER_HANDSHAKE;
        let by_memory = usize::try_from(by_memory).ok().and_then(NonZeroUsize::new);
        by_memory.map_or(least, |handshakes| handshakes.max(least))
    })
}

/// Returns the limits of the client listener.
pub(super) fn connections(settings: &Settings) -> net::Config {
    let limits = &settings.limits;
    let proxies = settings.listen.proxy_protocol_from.iter();
    let proxies = proxies.map(|network| network.0).collect();
    net::Config {
        proxies: ProxyNetworks(proxies),
        max_connections: limits.max_connections,
        max_pending_openings: max_pending_handshakes(limits),
        handshake_timeout: limits.handshake_timeout.0,
        head_timeout: limits.head_timeout.0,
        write_timeout: limits.write_timeout.0,
        tcp_keepalive: limits.tcp_keepalive.0,
        // The range of the setting ends far below the largest number.
        max_header_bytes: u32::try_from(limits.max_header_bytes.0).unwrap_or(u32::MAX),
        max_concurrent_streams: limits.http2_max_streams_per_connection,
        max_resets_per_second: limits.http2_max_resets_per_second,
        ..net::Config::default()
    }
}

/// Returns the limits of requests, of which those from web pages have rules of their own.
pub(super) fn requests(settings: &Settings, web_pages: WebPageRules) -> server::Config {
    let limits = &settings.limits;
    server::Config {
        max_requests_inflight: limits.max_requests_inflight,
        max_url_bytes: limits.max_url_bytes.0,
        max_unindexed_selectors: max_unindexed(limits),
        users: UserLimits {
            streams: limits.max_streams_per_user,
            watches: limits.max_watches_per_user,
            proof_scopes: limits.max_proof_scopes_per_user,
        },
        request_timeout: limits.request_timeout.0,
        write_timeout: limits.write_timeout.0,
        shard_selectors: settings.cache.shard_selector,
        has_sessions: settings.cache.has_sessions(),
        has_cache_status: settings.listen.cache_status,
        has_bill: settings.admin.bill,
        web_pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_handshakes_may_be_pending_with_more_memory() {
        let nonzero = |count| NonZeroUsize::new(count).expect("not zero");
        for (memory, configured, expected) in [
            (64 << 20, None, 1_024),
            (256 << 20, None, 1_024),
            (1 << 30, None, 4_096),
            (1 << 30, Some(10), 10),
            (64 << 20, Some(8_192), 8_192),
        ] {
            let limits = Limits {
                memory: Some(ByteSize(memory)),
                max_pending_handshakes: configured.map(nonzero),
                ..Limits::default()
            };
            let found = max_pending_handshakes(&limits);
            assert_eq!(found, nonzero(expected), "{memory} {configured:?}");
        }
    }
}
