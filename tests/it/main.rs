//! The tests that need more than one room, in one binary.
#![allow(clippy::disallowed_methods)] // a test's tasks end with its runtime

mod configuration; // kubefan config, and what serve reads
mod demo; // the first command of the README
mod documents; // what the documents say is there: links, invariants, rooms
mod fuzzing; // what the fuzz targets hold, of their seeds
mod layering; // no room names another that it may not
mod load; // kubefan load: its reports, what it notices, what it leaves
mod load_through_proxy; // what kubefan load asks of a server, and what it makes of one that misbehaves
mod readme; // every command in README.md is exercised somewhere
mod repository; // the files of this checkout, read as text
mod sim_end_to_end; // the simulator as a program, alone and behind kubefan
mod support; // servers, clients and faults that tests stand on
mod upstream; // kubefan against a real kube-apiserver
