//! A load test for the watches of any API server. It has many watchers and writes on a schedule,
//! and checks that every watcher gets every event that matches its selector, once and in order.
//!
//! ```text
//! setup     a namespace with objects; each has a marker: the number and due time of its last write
//! writer    changes the markers on schedule ─────────────────────────► the server
//! receivers a few threads, each with a runtime and connections ◄────── the server's watches
//!             watcher: cuts frames without copying ─ finds the marker ─ checker, tally
//! run       the phases: set up, sync, write, drain, resume, clean up ─► report ─► table, JSON, page
//! ```
//!
//! The receivers share the machine with the server, so they do not parse frames: they search the
//! first few hundred bytes of a frame twice. Under HTTP/2, the task of a connection does this for
//! all its watches as soon as it has read the bytes; a watcher's own task only opens its watches.
//! Every lost event is noticed, because the checker compares the events of each object with its
//! acknowledged writes. A slow server cannot hide its latency by delaying the writes, because
//! latency is measured from the time when a write was due.

mod clock;
mod config;
mod error;
mod histogram;
mod http2;
mod progress;
mod results;
mod run;
mod run_state;
mod selector;
mod target;
#[cfg(test)]
mod test_server;
mod usage;
mod watch;
mod workers;
mod write;

pub use config::{Config, Protocol, TargetServer};
pub use error::Error;
pub use histogram::{Histogram, Latency};
pub use progress::Progress;
pub use results::environment::Environment;
pub use results::page::page;
pub use results::report::{Events, Ratios, Report, Resume, Run, Settings, Watches, Writes};
pub use results::table::table;
pub use results::times::times;
pub use run::run;
pub use selector::SelectorTemplate;
pub use usage::Usage;
pub use watch::checker::DeliveryErrors;
pub use watch::frames::{FrameCutter, FrameTooLong, FrameType, VersionFinder};
pub use watch::list_storm::Lists;
pub(crate) use watch::slot::Slot;
