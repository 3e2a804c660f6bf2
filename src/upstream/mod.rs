//! Everything that talks to the real API server.

mod answer;
mod client;
mod connect_error;
mod connector;
mod dedicated;
mod discovery;
mod discovery_documents;
mod error;
mod forward;
mod freshness_probe;
mod headers;
mod home;
mod kubeconfig;
mod lanes;
mod lister_watcher;
mod resource_client;
mod rest_mapper;
mod route;
mod suggestions;
mod token_file;
mod transport;
mod upgrade;
mod warnings;
mod watch_events;

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod discovery_tests;
#[cfg(test)]
mod forward_tests;
#[cfg(test)]
mod kubeconfig_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod resource_client_tests;
#[cfg(test)]
mod rest_mapper_tests;
#[cfg(test)]
mod server_for_tests;

pub use answer::collect;
pub use client::Client;
pub use client::ClientConfig;
pub use client::Identity;
pub use connect_error::ConnectError;
pub use dedicated::Dedicated;
pub use dedicated::HttpVersion;
pub use discovery::Discovery;
pub use error::Error;
pub use forward::Forwarded;
pub use forward::Forwarder;
pub use freshness_probe::FreshnessProbe;
pub use freshness_probe::Scope;
pub use headers::is_upgrade;
pub use lister_watcher::ListRequest;
pub use lister_watcher::ListerWatcher;
pub use lister_watcher::WatchRequest;
pub use lister_watcher::WatchStart;
#[cfg(test)]
pub(crate) use memory_tests::Dial;
pub use resource_client::ResourceClient;
pub use rest_mapper::Changes;
pub use rest_mapper::NotCacheable;
pub use rest_mapper::RestMapper;
pub use rest_mapper::UnknownResource;
pub(crate) use suggestions::closest;
pub use upgrade::Upgrade;
pub use upgrade::UpgradedBytes;
pub use warnings::Warnings;
pub use watch_events::WatchEvents;
