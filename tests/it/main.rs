//! The tests that need more than one room, in one binary.
#![allow(clippy::disallowed_methods)] // a test's tasks end with its runtime

mod documents; // what the documents say is there: links, invariants, rooms
mod layering; // no room names another that it may not
mod readme; // every command in README.md is exercised somewhere
mod repository; // the files of this checkout, read as text
mod support; // servers, clients and faults that tests stand on
mod upstream; // kubefan against a real kube-apiserver
