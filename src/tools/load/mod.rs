//! A watch load test for any API server: many watchers, writes on a schedule, and a check that every watcher
//! got every event that its selector wants, once and in order.
//!
//! ```text
//! stage     a namespace and objects; each object carries a marker: which write it shows, and when that was due
//! writer    changes the markers on schedule ───────────────────────────────► the server
//! receivers a few threads, each with a runtime and its connections ◄──────── its watches
//!             watcher: frames cut where they lie ─ marker found in their bytes ─ checker, tally
//! run       the phases: stage, sync, write, drain, clean up ─► report ─► table, JSON, page
//! ```
//!
//! The receiving side shares the machine with the server, so it parses nothing: a frame costs it two searches in
//! its first few hundred bytes. Loss can't hide, as the checker counts by object what was acknowledged; and a
//! slow server can't slow the schedule down, as latency counts from when a write was due.

mod clock;
mod config;
mod error;
mod histogram;
mod progress;
mod results;
mod run;
mod run_state;
mod selector;
mod target;
mod usage;
mod watch;
mod write;

pub use config::Config;
pub use config::Protocol;
pub use config::TargetServer;
pub use error::Error;
pub use histogram::Histogram;
pub use histogram::Latency;
pub use progress::Progress;
pub use results::page::page;
pub use results::report::Events;
pub use results::report::Ratios;
pub use results::report::Report;
pub use results::report::Run;
pub use results::report::Settings;
pub use results::report::Watches;
pub use results::report::Writes;
pub use results::table::table;
pub use run::run;
pub use selector::SelectorError;
pub use selector::SelectorTemplate;
pub use usage::Usage;
pub use watch::checker::DeliveryErrors;
pub use watch::frames::FrameCutter;
pub use watch::frames::FrameTooLong;
pub use watch::frames::FrameType;
pub use watch::frames::VersionFinder;
pub use watch::list_storm::Lists;
pub use write::schedule::Rate;
