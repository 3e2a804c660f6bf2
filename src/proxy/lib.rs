//! The server of kubefan: it answers reads and watches of Kubernetes clients from caches.
//!
//! The crate is part of the program `kubefan` and of its tools. Any version may change it. Each
//! room may use those above it:
//!
//! - [`text`]: numbers as texts for people.
//! - [`limit`]: the limits for which a request gets 429.
//! - [`ledger`]: the memory that is held for readers and callers.
//! - [`bill`]: what each client uses, and what it saves the API server.
//! - [`net`]: listeners, TLS and connections.
//! - [`identity`]: who a caller is, and what it may read.
//! - `line_log`: logs of lines, such as the audit log.
//! - [`traces`]: spans of requests, for a collector of OpenTelemetry.
//! - [`server`]: the request path; its documentation is a map of it.
//! - [`config`]: the settings, from files, flags and variables.
//! - [`app`]: starts and stops the parts of the program.
//! - [`process`]: what the subcommands share.
//! - [`admin_client`]: asks a running kubefan, for the subcommands that show what it does.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod admin_client;
pub mod app;
pub mod bill;
pub mod config;
pub mod identity;
pub mod ledger;
pub mod limit;
mod line_log;
pub mod net;
pub mod process;
pub mod server;
pub mod text;
pub mod traces;
