//! What the integration tests stand on: a real API server, the built kubefan
//! binary, kubectl, a proxy that makes faults, and clients that fold watches.
#![allow(dead_code, reason = "each test room uses its own part of the support")]

pub(crate) mod apiserver;
pub(crate) mod assets;
pub(crate) mod balancer;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod connector;
pub(crate) mod fault_proxy;
pub(crate) mod fold;
pub(crate) mod frames;
pub(crate) mod front;
pub(crate) mod history;
pub(crate) mod informers;
pub(crate) mod kubeconfig;
pub(crate) mod kubectl;
pub(crate) mod kubefan;
pub(crate) mod lagging_etcd;
pub(crate) mod normalise;
pub(crate) mod older;
pub(crate) mod pods;
pub(crate) mod poll;
pub(crate) mod process;
mod replies;
pub(crate) mod settings;
pub(crate) mod sibling;
pub(crate) mod sim;
pub(crate) mod watcher;
