//! Support code of the integration tests: a real API server, the built kubefan binary, kubectl,
//! proxies that inject faults, and clients that fold watches into a state.
#![allow(dead_code, reason = "each test room uses its own part of the support")]

pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod comparable;
pub(crate) mod events;
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
