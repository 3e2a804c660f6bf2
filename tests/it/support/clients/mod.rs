//! Clients of the Kubernetes API that show what came over the wire.

pub(crate) mod client;
pub(crate) mod connector;
pub(crate) mod fold;
pub(crate) mod frames;
pub(crate) mod watcher;
