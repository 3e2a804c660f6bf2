//! kubefan: a caching watch proxy for the Kubernetes API.
//!
//! One informer per resource and wire format follows the real API server; any number of unmodified
//! clients are answered from its cache, and what a cache can't prove it can answer is forwarded.
//!
//! ```text
//! change   upstream ─ watch frames ─ codec ─ reflector ─ cache writer ─┬─ store (a clone is a snapshot)
//!                                                                      └─ event log ─ wake
//! request  net: listener ─ TLS ─ connection
//!          server: trace ─ gzip ─ recover ─ local only ─ request ─ decide
//!            ├─ read ──── acquire (the informer) ─ prove (fresh enough?) ─ read ─ deliver ─ socket
//!            └─ forward ─ upstream, streaming both ways ─ socket
//!          any error on the way ─ rescue ─ Status
//! ```
//!
//! The rooms, from those that know nobody to the one that knows all; `tests/it/layering.rs` holds
//! who may name whom. Without features there are those of the library:
//!
//! - [`shutdown`], [`telemetry`]: how the process ends, what it tells.
//! - [`api`]: the Kubernetes words as plain values.
//! - [`codec`]: bytes to `api` values and back.
//! - [`cache`]: one resource's objects and recent history; its invariants stand in its `mod.rs`.
//! - [`upstream`]: everything that talks to the API server.
//! - [`informer`]: keeps caches equal to upstream.
//! - `concurrency`, `body`, `mutation`: what several of them share, and promised to nobody.
//!
//! With the feature `proxy`, which chooses a version of `k8s-openapi`, those of the server and of the binary:
//!
//! - `net`: sockets, TLS, HTTP framing.
//! - `server`: the request path; start reading at its `mod.rs`.
//! - `config`, `app`, `process`, `commands`: what file, environment and flags say, the composition
//!   root, what a process needs, the subcommands.
//!
//! With the feature `tools`, which includes `proxy`, the instruments:
//!
//! - `tools`: a simulated API server, a load test, a synthetic cluster, a demo.
//!
//! What is private here is promised to nobody. Tests and benches reach it by the feature
//! `unstable-internals`.

#![cfg_attr(test, allow(clippy::disallowed_methods))]
// a test's tasks end with its runtime
// Private rooms are judged with all their users, which are tests and benches too: in the build that has all sets.
#![cfg_attr(
    not(feature = "unstable-internals"),
    allow(dead_code, unreachable_pub, unused_imports)
)]

// The library.
pub mod api;
mod body;
pub mod cache;
pub mod codec;
mod concurrency;
pub mod informer;
mod mutation;
pub mod shutdown;
pub mod telemetry;
pub mod upstream;

// The proxy.
#[cfg(feature = "proxy")]
mod app;
#[cfg(feature = "proxy")]
mod commands;
#[cfg(feature = "proxy")]
mod config;
#[cfg(feature = "proxy")]
mod net;
#[cfg(feature = "proxy")]
mod process;
#[cfg(feature = "proxy")]
mod server;

// The tools, or in a proxy without them what stands in for them.
#[cfg(feature = "tools")]
mod tools;
#[cfg(all(feature = "proxy", not(feature = "tools")))]
#[path = "tools/none.rs"]
mod tools;

/// What the binary does.
#[cfg(feature = "proxy")]
#[doc(hidden)]
pub use commands::run;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals;
