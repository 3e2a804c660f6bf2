//! The integration tests: everything that needs more than one room, in one test binary.
#![allow(clippy::disallowed_methods)] // a test's tasks end with its runtime

mod buffers; // what the buffers of connections hold, and which are closed when memory is short
mod command_line; // `kubefan version` and `kubefan completion`
mod configuration; // `kubefan config`, and `kubefan serve` with a configuration file
mod demo; // `kubefan demo`, the first command of the README
mod dependencies; // a program with the library alone has no server
mod documents; // the Markdown documents: links, the book, source paths, invariants, rooms, lengths
mod drain; // SIGTERM: what clients see until kubefan has exited
mod examples; // the programs in examples/
mod fuzzing; // the properties of the fuzz targets, checked on their seeds
mod ignored; // tests that need programs of others are ignored in a build without these
mod isolation; // reads of a selection that kubefan and the API server understand differently
mod layering; // the rooms of src depend on each other only as ARCHITECTURE.md allows
mod limits; // the limits of requests and connections
mod load; // `kubefan load`: its reports, the losses it detects, its cleanup
mod load_through_proxy; // the requests of `kubefan load`, and how it handles a faulty server
mod mixin; // the alerts, recording rules and dashboard: names, promtool, and alerts at real faults
mod prose; // the comments of all Rust sources use plain words
mod readme; // a test runs every command that README.md and the pages of docs show
mod repository; // the files of this checkout, read as text
mod sim_end_to_end; // the simulator as a program, alone and behind kubefan
mod start; // what a start waits for, what ends it, and signals meanwhile
mod support; // servers, clients and proxies that the tests use
mod traces; // the spans that a collector gets, and the context that the API server gets
mod upstream; // kubefan against a real kube-apiserver
