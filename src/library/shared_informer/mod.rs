//! Shared informers: typed objects, event handlers, listers and indexes over one cache.
//!
//! A [`SharedInformer`] gives any number of users of a program the objects of one resource as a
//! Rust type. It owns no second queue: each handler is a position in the cache's event log.
//!
//! ```text
//!                    ┌─ Changes ─► handler      each at its own speed
//!   cache ─ event log┼─ Changes ─► handler
//!     │              └─ View ──► indexes, decoded objects ─┐
//!     └─ snapshots ────────────────────────────────────────┴─► Lister
//! ```
//!
//! - **Handlers.** [`SharedInformer::add_handler`] calls an [`EventHandler`] for each object that
//!   is present, and then for each change. [`SharedInformer::changes`] returns them as a stream.
//!   Handlers may be added and removed at any time.
//! - **A slow handler delays no other.** If the log has dropped a change that a handler has not
//!   seen yet, the handler gets the difference between the state that it had reached and the
//!   present one. It loses only states in between
//!   (`a_handler_that_was_left_behind_gets_the_difference`).
//! - **Memory of a handler.** The changes that wait for a handler are those of the cache's event
//!   log, which all handlers share. So the limit of these changes is the log's: its bytes, and then
//!   its age ([`informer::Config`](kubefan_core::informer::Config), by default 10 s). A handler
//!   also refers to the last state that it has received of each object that it selects. So these
//!   states stay in memory while the handler is behind.
//! - **Listers** read the cache. A [`Lister`] is never older than a change that a handler was
//!   called for (`a_lister_is_never_older_than_the_change_of_a_handler`).
//! - **Factory.** A [`Factory`] starts informers, and shares those that exist.
//! - **Indexes** find objects by the values that a function returns for them.
//!
//! # Invariants
//!
//! For any history, a handler's folded changes equal the cache
//! (`a_handlers_view_equals_the_cache_after_any_history`).

mod change;
mod changes;
mod config;
mod decode;
mod factory;
mod handler;
mod index;
mod informer;
mod lister;
mod reached;
mod shared;
mod shared_view;
mod source;
mod view;

#[cfg(test)]
mod tests;

pub use change::{Change, Deleted};
pub use changes::Changes;
pub use config::{Config, Storage};
pub use decode::DecodeError;
pub use factory::{Factory, FactoryError};
pub use handler::{EventHandler, Filtering, HandlerFunctions, HandlerRegistration};
pub use index::IndexError;
pub use informer::SharedInformer;
pub use lister::Lister;
