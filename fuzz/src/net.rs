//! The flow control of HTTP/2 connections, which reads frames from any client.

#[path = "../../src/proxy/net/output/flow_control/mod.rs"]
mod flow_control;

pub use flow_control::{FlowControl, StreamReset};
