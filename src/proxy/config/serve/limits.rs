//! The limits of connections, requests and memory.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::checker::Checker;
use crate::config::settings::{Limits, Settings};
use crate::config::values::units::ByteSize;
use crate::net::ProxyNetworks;
use crate::{ledger, net};

/// The sizes that `limits.maxHeaderBytes` may have; hyper needs 8 KiB.
const HEADER_BYTES: RangeInclusive<usize> = 8 << 10..=16 << 20;
/// The sizes that `limits.maxUrlBytes` may have.
const URL_BYTES: RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Values that the kernel accepts, in milliseconds as a 32-bit number.
const WRITE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 24 * 3600);
/// Values that the kernel accepts, in seconds as a 16-bit number.
const TCP_KEEPALIVE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(9 * 3600);

/// The most verbose log.
const MAX_VERBOSITY: u8 = 2;

impl Checker<'_> {
    pub(super) fn limits(&mut self) {
        let limits = &self.settings.limits;
        let upstream = &self.settings.upstream;
        for (key, timeout) in [
            ("upstream.pingInterval", upstream.ping_interval),
            ("upstream.pingTimeout", upstream.ping_timeout),
            ("cache.idleTimeout", self.settings.cache.idle_timeout),
            ("limits.requestTimeout", limits.request_timeout),
            ("limits.handshakeTimeout", limits.handshake_timeout),
            ("limits.headTimeout", limits.head_timeout),
        ] {
            if timeout.0.is_zero() {
                self.report(key, "must be more than 0s, such as 10s");
            }
        }
        if self.settings.log.verbosity > MAX_VERBOSITY {
            self.report("log.verbosity", "must be 0, 1 for debug, or 2 for trace");
        }
        if !WRITE_TIMEOUT.contains(&limits.write_timeout.0) {
            self.report("limits.writeTimeout", "must be from 1s to 24d");
        }
        if !TCP_KEEPALIVE.contains(&limits.tcp_keepalive.0) {
            self.report("limits.tcpKeepalive", "must be from 1s to 9h");
        }
        let sizes = [
            (
                "limits.maxHeaderBytes",
                limits.max_header_bytes.0,
                HEADER_BYTES,
                "8Ki to 16Mi",
            ),
            (
                "limits.maxUrlBytes",
                limits.max_url_bytes.0,
                URL_BYTES,
                "1Ki to 64Ki",
            ),
        ];
        for (key, bytes, possible, name) in sizes {
            if !possible.contains(&bytes) {
                self.report(key, &format!("{bytes} bytes are not from {name}"));
            }
        }
    }

    pub(super) fn memory(&mut self) -> ledger::Limits {
        let limits = &self.settings.limits;
        let sizes = [
            ("limits.memory", limits.memory, ledger::Limits::MIN_MEMORY),
            (
                "limits.connectionMemory",
                limits.connection_memory,
                ledger::Limits::MIN_CONNECTION_MEMORY,
            ),
        ];
        let bytes = |size: ByteSize| size.0 as u64;
        let [memory, connection_memory] = sizes.map(|(key, size, least)| {
            let size = size.map(bytes);
            if size.is_some_and(|size| size < least) {
                self.report(key, &format!("must be at least {}Mi", least >> 20));
            }
            size
        });
        ledger::Limits::new(memory, connection_memory, bytes(limits.min_body_rate))
    }
}

/// Returns the upper limit of the selections without an index that watches of one cache may have.
pub(super) fn max_unindexed(limits: &Limits) -> usize {
    match limits.max_unindexed_selectors {
        0 => usize::MAX,
        max => max,
    }
}

/// Returns the limits of the client listener; `None` if a value is out of range. Such a value has
/// already been reported.
pub(super) fn connections(settings: &Settings) -> Option<net::Config> {
    let limits = &settings.limits;
    let proxies = settings.listen.proxy_protocol_from.iter();
    let proxies = proxies.map(|network| network.0).collect();
    Some(net::Config {
        proxies: ProxyNetworks::new(proxies),
        max_connections: limits.max_connections,
        max_pending_openings: limits.max_pending_handshakes,
        handshake_timeout: limits.handshake_timeout.0,
        head_timeout: limits.head_timeout.0,
        write_timeout: limits.write_timeout.0,
        tcp_keepalive: limits.tcp_keepalive.0,
        max_header_bytes: u32::try_from(limits.max_header_bytes.0).ok()?,
        max_concurrent_streams: limits.http2_max_streams_per_connection,
        max_resets_per_second: limits.http2_max_resets_per_second,
        ..net::Config::default()
    })
}
