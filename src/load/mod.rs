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

mod checker;
mod clock;
mod config;
mod error;
mod frames;
mod histogram;
mod marker;
mod measure;
mod objects;
mod page;
mod peak;
mod plot;
mod progress;
mod receivers;
mod report;
mod run;
mod schedule;
mod selector;
mod shared;
mod stage;
mod storm;
mod summary;
mod table;
mod tally;
mod target;
mod usage;
mod watcher;
mod writer;

pub use checker::Faults;
pub use config::Config;
pub use config::Protocol;
pub use config::Target;
pub use error::Error;
pub use frames::Cutter;
pub use frames::Kind;
pub use frames::TooLong;
pub use frames::Versions;
pub use histogram::Histogram;
pub use histogram::Latency;
pub use page::page;
pub use progress::Progress;
pub use report::Events;
pub use report::Ratios;
pub use report::Report;
pub use report::Run;
pub use report::Settings;
pub use report::Watches;
pub use report::Writes;
pub use run::run;
pub use schedule::Rate;
pub use selector::SelectorError;
pub use selector::SelectorTemplate;
pub use storm::Lists;
pub use table::table;
pub use usage::Usage;
