//! The client side of kubefan and its cache: what the informer library and the proxy share.
//!
//! Programs use the crate `kubefan`, which has the public rooms of this one. Rooms that only the
//! proxy and the tools need may change in any version.
//!
//! Each room may use those above it:
//!
//! - [`shutdown`]: the phases in which the process ends, the count of running tasks, and signals.
//! - [`telemetry`]: the log and the registry of metrics.
//! - [`concurrency`]: tools for tasks that share a resource.
//! - [`body`]: the body type of all requests and responses.
//! - [`mutation`]: the bugs that models of the tests plant.
//! - [`api`]: Kubernetes terms as plain values: objects, resource versions, selectors, `Status`.
//! - [`cache`]: the objects and recent events of one resource in one wire format.
//! - [`codec`]: converts bytes to these values and back, in JSON and protobuf.
//! - [`upstream`]: the client of the API server: list and watch, discovery, forwarding.
//! - [`informer`]: makes caches follow the API server, and proves that a cache is fresh enough.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod api;
pub mod body;
pub mod cache;
pub mod codec;
pub mod concurrency;
pub mod informer;
#[doc(hidden)]
pub mod mutation;
pub mod shutdown;
pub mod telemetry;
pub mod upstream;
