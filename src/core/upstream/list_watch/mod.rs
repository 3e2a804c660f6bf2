//! LIST and WATCH of one resource, and the requests that prove how fresh a cache is.

mod freshness_probe;
mod lister_watcher;
mod resource_client;
mod unproven_answers;
mod watch_events;
mod watch_liveness;

pub use freshness_probe::{FreshnessProbe, Scope};
pub use lister_watcher::{ListCall, ListerWatcher, ResumePoint, WatchCall};
pub use resource_client::ResourceClient;
pub use unproven_answers::PROOF_HEADER;
#[cfg(test)]
pub(crate) use unproven_answers::unproven_method;
pub use watch_events::WatchEvents;
pub use watch_liveness::WatchLiveness;
