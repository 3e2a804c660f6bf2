//! What tests put between a client and a server, to see and to disturb what passes.

pub(crate) mod balancer;
pub(crate) mod fault_proxy;
pub(crate) mod front;
pub(crate) mod lagging_etcd;
pub(crate) mod listener;
pub(crate) mod older;
mod relay;
mod replies;
