//! kubefan: a caching watch proxy for the Kubernetes API.
//!
//! One informer per resource and wire format follows the real API server; any number of unmodified
//! clients are answered from its cache, and what a cache can't prove it can answer is forwarded.
//!
//! ```text
//! change   upstream ─ watch frames ─ codec ─ reflector ─ cache writer ─┬─ store (a clone is a snapshot)
//!                                                                      └─ event log ─ wake
//! request  net: listener ─ TLS ─ connection
//!          server: trace ─ recover ─ local only ─ request info ─ router
//!            ├─ get, list ─ cache reader (fresh enough? snapshot, page) ─ codec ─ body ─ socket
//!            ├─ watch ───── cache watch stream (cursor, selection) ─ frame, encoded once ─ socket
//!            └─ forward ─── upstream, streaming both ways ─ socket
//!          any error on the way ─ rescue ─ Status
//! ```
//!
//! The rooms, from those that know nobody to the one that knows all; `tests/it/layering.rs` holds
//! who may name whom:
//!
//! - [`shutdown`], [`telemetry`]: how the process ends, what it tells.
//! - [`api`]: the Kubernetes words as plain values.
//! - [`workload`]: a synthetic cluster that changes as if it lived.
//! - [`net`]: sockets, TLS, HTTP framing.
//! - [`codec`]: bytes to `api` values and back.
//! - [`cache`]: one resource's objects and recent history; its invariants stand in its `mod.rs`.
//! - [`upstream`]: everything that talks to the API server.
//! - [`informer`]: keeps caches equal to upstream.
//! - [`server`]: the request path; start reading at its `mod.rs`.
//! - [`sim`]: a simulated API server, of the same serving code over a store of its own.
//! - [`load`]: a watch load test for any API server.
//! - [`config`], [`app`], [`commands`]: what file, environment and flags say, the composition root,
//!   the subcommands.

#![cfg_attr(test, allow(clippy::disallowed_methods))] // a test's tasks end with its runtime

pub mod api;
pub mod app;
pub mod body;
pub mod cache;
pub mod codec;
pub mod commands;
pub mod concurrency;
pub mod config;
pub mod informer;
pub mod load;
mod mutation;
pub mod net;
pub mod server;
pub mod shutdown;
pub mod sim;
pub mod telemetry;
pub mod upstream;
pub mod workload;
