//! The client side of kubefan: everything that sends requests to the API server.

mod answer;
mod client;
mod connect;
mod discovery;
mod error;
mod forward;
mod list_watch;
mod outage;
mod readiness;
mod warnings;

#[cfg(test)]
mod tests;

/// Bytes of an answer that the API server may send while nothing reads the answer.
pub const STREAM_WINDOW: u64 = connect::transport::http2_pool::STREAM_WINDOW as u64;

pub use answer::{collect, date};
pub use client::{Client, Identity, has_dot_segment};
#[cfg(any(test, feature = "test-support"))]
pub use connect::connection::connector::Dial;
pub use connect::connection::last_read::Io;
pub use connect::credentials::accepted::bearer_token;
pub use connect::transport::dedicated::{DedicatedConnection, HttpVersion, RequestSender};
pub use connect::{ClientConfig, ConnectError, OtherServer};
pub(crate) use discovery::CustomResource;
pub use discovery::{
    Definition, Discovery, DiscoveryChanges, MappingError, NotCacheable, PartialResource,
    PolledVersion, RestMapper, UnknownResource, closest,
};
pub use error::Error;
pub use forward::{
    ForwardedResponse, Forwarder, PendingUpgrade, UpgradedBytes,
    connection_lists_end_to_end_header, is_upgrade,
};
#[cfg(test)]
pub(crate) use list_watch::unproven_method;
pub use list_watch::{
    FreshnessProbe, ListCall, ListerWatcher, PROOF_HEADER, ResourceClient, ResumePoint, Scope,
    WatchCall, WatchEvents, WatchLiveness,
};
pub use warnings::Warnings;
