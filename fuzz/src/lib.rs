//! kubefan's parsers for libFuzzer.
//!
//! This crate compiles only the rooms `api` and `codec`, the flow control of HTTP/2 connections,
//! and the load test's parser of watch frames. A build of all of kubefan would take many minutes,
//! and libFuzzer would count code that no input reaches.

extern crate self as kubefan;
extern crate self as kubefan_core;
extern crate self as kubefan_proxy;
extern crate self as kubefan_tools;

#[path = "../../src/core/api/mod.rs"]
pub mod api;
#[path = "../../src/core/codec/mod.rs"]
pub mod codec;
pub mod load;
pub mod net;
pub mod properties;
