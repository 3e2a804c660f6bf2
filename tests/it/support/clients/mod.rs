//! Clients of the Kubernetes API that give the tests the bytes that servers sent.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod connector;
pub(crate) mod fold;
pub(crate) mod frames;
pub(crate) mod watcher;
