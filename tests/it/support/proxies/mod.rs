//! Proxies that tests put between a client and a server, to record or to disturb the traffic.

pub(crate) mod balancer;
pub(crate) mod fault_proxy;
pub(crate) mod lagging_etcd;
pub(crate) mod listener;
pub(crate) mod missing_feature;
mod relay;
mod replies;
pub(crate) mod scripted_proxy;
