//! The library of kubefan, a caching watch proxy for the Kubernetes API.
//!
//! A Kubernetes client that follows a resource lists it once and then watches it. The library does
//! this once per resource and wire format, in an *informer*, and any number of tasks of a program
//! read from the informer's cache. These reads cost the API server nothing:
//!
//! ```text
//!              LIST
//!              WATCH                                     ┌── cache ──┐
//!   API server ─────► upstream ─► codec ─► reflector ──► │ store     │ ─► snapshots
//!                                                        │ event log │ ─► watch streams
//!                                                        └───────────┘
//! ```
//!
//! - A *snapshot* is the list of all objects at one resource version. It never changes.
//! - A *watch stream* delivers every event after its start that its selectors match, in order. If
//!   the cache no longer has the next event, the stream ends as expired, as a watch of the API
//!   server does with 410.
//! - If the API server's watch is lost, the informer lists again and sends the difference to the
//!   open watch streams. They continue, unless events cannot express the difference.
//! - Objects keep the API server's bytes. The library parses their metadata and the fields that
//!   selectors use, and leaves the rest to the program.
//!
//! The kubefan server answers its clients' LIST, GET and WATCH requests from the same caches.
//!
//! # Example
//!
//! Follow the pods of the current kubeconfig's cluster:
//!
//! ```no_run
//! use std::sync::Arc;
//! use kubefan::api::{GroupVersionResource, Selection, WireFormat};
//! use kubefan::cache::{WatchFrom, WatchItem};
//! use kubefan::informer::{Config, InformerSet, LiveRestMapper};
//! use kubefan::shutdown::{self, Shutdown};
//! use kubefan::upstream::{Client, ClientConfig};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let shutdown = Shutdown::new(shutdown::Config::default());
//! let client = Client::connect(ClientConfig::default()).await?;
//! let mapper = LiveRestMapper::discover(client.clone()).await?;
//! let informers = InformerSet::new(client, Config::default(), shutdown.clone());
//!
//! let pods = GroupVersionResource::new("", "v1", "pods");
//! let spec = mapper.informer_spec(&pods, WireFormat::Json).ok_or("no pods")?;
//! let informer = informers.get_or_start(&spec, None)?;
//! let reader = informer.reader();
//! reader.ready().await; // waits for the first complete list
//! let mut watch = reader.watch(WatchFrom::Snapshot, Arc::new(Selection::default()))?;
//! while let Some(item) = watch.next().await {
//!     match item {
//!         WatchItem::Initial(object) => println!("exists: {}", object.key.as_str()),
//!         WatchItem::InitialEnd(version) => println!("these are all at version {version}"),
//!         WatchItem::Change { event, verdict } => {
//!             println!("{verdict:?}: {}", event.object.key.as_str())
//!         }
//!         WatchItem::Expired(expired) => return Err(expired.into()),
//!     }
//! }
//! shutdown.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Rooms
//!
//! A top-level module is called a *room*. The rooms that the crate shares with the kubefan proxy
//! come first. Each room is listed after the rooms that it uses:
//!
//! - [`shutdown`]: the phases in which the process ends, the count of running tasks, and signals.
//! - [`telemetry`]: the log and the registry of metrics.
//! - [`api`]: Kubernetes terms as plain values: objects, resource versions, selectors, `Status`.
//! - [`codec`]: converts bytes to these values and back, in JSON and protobuf.
//! - [`cache`]: the objects and recent events of one resource in one wire format. Its documentation
//!   states the invariants.
//! - [`upstream`]: the client of the API server: list and watch, discovery, forwarding.
//! - [`informer`]: updates caches from the API server, and proves that a cache is fresh enough.
//! - [`scheme`]: the Rust types of kinds, to decode objects with a kind that is found at run time.
//! - [`shared_informer`]: a cache's objects as a Rust type, for event handlers, listers and
//!   indexes.
//! - [`work_queue`]: a queue of keys for controllers, with delays, backoff and priorities.
//! - [`delta_fifo`]: a queue of the changes of objects, and the classic controller.
//! - [`controller`]: calls a function for each object that changed, with retries.
//! - [`leader_election`]: among several copies of a program, one at a time leads.
//! - [`manager`]: starts and stops the controllers of a program in order.
//! - [`event_recorder`]: writes Events about objects, and never makes the caller wait.
//! - [`fake_source`]: a programmable API server for tests, with one resource.
//!
//! The crate `kubefan-tools` has a simulated API server for tests, in the process.
//!
//! # Cargo
//!
//! The program selects the Kubernetes version of `k8s-openapi`. The program must use these versions
//! of `kube` and `k8s-openapi`, because their types are part of the interface:
//!
//! ```toml
//! [dependencies]
//! kubefan = { version = "0.2", path = "../kubefan/src/library" }
//! kube = { version = "5", default-features = false, features = ["client", "rustls-tls", "aws-lc-rs"] }
//! k8s-openapi = { version = "0.29", default-features = false, features = ["v1_37"] }
//! tokio = { version = "1.54", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! # Rights
//!
//! A program needs the rights to `list` and `watch` the resources of its informers, and the rights
//! for its own reads and writes. [`shared_informer::Factory`] has a ClusterRole, and describes the
//! effect of further rights.
//!
//! # Ends
//!
//! Until [`shutdown::Signals::of_process`] is called, SIGTERM and SIGINT end a program at once.
//! After that, the signals end the program in order, or at once if the program does not react.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

/// Implements `Debug` for a type of which not all fields can be shown. Shows the type's name, and
/// fields if some are given, as in `debug_fields!([K] Queue<K>, |it| len: it.len());`.
macro_rules! debug_fields {
    ([$($generics:tt)*] $name:ident $(<$($parameter:tt),*>)?) => {
        impl<$($generics)*> std::fmt::Debug for $name $(<$($parameter),*>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
    (
        [$($generics:tt)*] $name:ident $(<$($parameter:tt),*>)?,
        |$it:ident| $($field:ident: $value:expr),*
    ) => {
        impl<$($generics)*> std::fmt::Debug for $name $(<$($parameter),*>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}

pub use kubefan_core::{api, cache, codec, informer, shutdown, telemetry, upstream};

pub mod controller;
pub mod delta_fifo;
pub mod event_recorder;
pub mod fake_source;
pub mod leader_election;
pub mod manager;
pub mod scheme;
pub mod shared_informer;
pub mod work_queue;
