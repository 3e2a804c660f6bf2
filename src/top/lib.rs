//! `kubefan top`: caches, clients, requests and advice of a running kubefan, by its admin API.
//!
//! The crate is part of the program `kubefan`. Any version may change it. Each room may use those
//! above it:
//!
//! - `text`: foreign text that can't harm a terminal; numbers with units.
//! - `pages`: the pages of the admin API, and what reads them again and again.
//! - `tables`: the tables of the views, made from the pages. Pure.
//! - `screen`: the screen: its model, which is pure, and the terminal.
//! - `command`: the subcommand.

// Tests may use `tokio::spawn`: the tasks of a test end with its runtime.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod command;
mod pages;
mod screen;
mod tables;
mod text;

pub use command::{TopArgs, top};
