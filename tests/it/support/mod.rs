//! What the integration tests stand on: a real API server, the built kubefan
//! binary, kubectl, a proxy that makes faults, and clients that fold watches.
#![allow(dead_code, reason = "each test room uses its own part of the support")]

pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod comparable;
pub(crate) mod faulty;
pub(crate) mod history;
pub(crate) mod normalise;
pub(crate) mod outcomes;
pub(crate) mod pods;
pub(crate) mod poll;
pub(crate) mod programs;
pub(crate) mod proxies;
pub(crate) mod settings;
pub(crate) mod states;
