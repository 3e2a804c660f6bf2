//! The client side of kubefan: everything that sends requests to the API server.

mod answer;
mod client;
mod connect;
mod dedicated;
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
pub const STREAM_WINDOW: u64 = connect::http2_pool::STREAM_WINDOW as u64;

pub use answer::collect;
pub use answer::date;
pub use client::Client;
pub use client::Identity;
pub use client::has_dot_segment;
pub use connect::ClientConfig;
pub use connect::ConnectError;
pub use connect::accepted::bearer_token;
#[cfg(any(test, feature = "test-support"))]
pub use connect::connector::Dial;
pub use dedicated::DedicatedConnection;
pub use dedicated::HttpVersion;
pub use discovery::Definition;
pub use discovery::Discovery;
pub use discovery::DiscoveryChanges;
pub use discovery::MappingError;
pub use discovery::NotCacheable;
pub use discovery::PartialResource;
pub use discovery::PolledVersion;
pub use discovery::RestMapper;
pub use discovery::UnknownResource;
pub use discovery::closest;
pub use error::Error;
pub use forward::ForwardedResponse;
pub use forward::Forwarder;
pub use forward::PendingUpgrade;
pub use forward::UpgradedBytes;
pub use forward::connection_lists_end_to_end_header;
pub use forward::is_upgrade;
pub use list_watch::FreshnessProbe;
pub use list_watch::ListCall;
pub use list_watch::ListerWatcher;
pub use list_watch::ResourceClient;
pub use list_watch::ResumePoint;
pub use list_watch::Scope;
pub use list_watch::WatchCall;
pub use list_watch::WatchEvents;
pub use list_watch::WatchLiveness;
pub use warnings::Warnings;
