//! What a load test is to do.

use std::time::Duration;

use crate::api::WireFormat;
use crate::upstream::ClientConfig;

use super::selector::SelectorTemplate;
use super::write::schedule::Rate;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server that is watched.
    pub watched: TargetServer,
    /// Another one, to be watched the same way afterwards.
    pub compared: Option<TargetServer>,
    /// Where objects are made and changed; `None` for the server that is watched. As [`TargetServer::client`].
    pub write_client: Option<ClientConfig>,
    /// The resource, as kubectl takes it.
    pub resource: String,
    /// The namespace of the objects; `None` for one of the run's own. One that is not there is made, and
    /// deleted afterwards; of one that is, only the run's objects are.
    pub namespace: Option<String>,
    /// Whether all namespaces are watched.
    pub all_namespaces: bool,
    /// Watchers; at least one.
    pub watchers: u32,
    /// Connections that they share under HTTP/2; at least one. Under HTTP/1.1 each has its own.
    pub connections: u32,
    /// What is spoken.
    pub protocol: Protocol,
    /// What events come in.
    pub format: WireFormat,
    /// What each watcher selects by; `None` for everything.
    pub selector: Option<SelectorTemplate>,
    /// How fast is written.
    pub rate: Rate,
    /// Writes that have not reached every watcher, at most, where the rate is [`Rate::Max`]; `None` for no limit.
    pub window: Option<u32>,
    /// Objects; at least one.
    pub objects: u32,
    /// Bytes of an object as JSON, as the server tells it.
    pub object_size: usize,
    /// How long is written.
    pub duration: Duration,
    /// Clients that list everything over and over meanwhile.
    pub list_storm: u32,
    /// Further watchers that don't read.
    pub slow_watchers: u32,
    /// Whether watchers ask for the objects there are as a watch-list.
    pub watch_list: bool,
    /// Threads that receive; at least one.
    pub threads: u32,
}

/// A server that is watched.
#[derive(Clone, Debug, Default)]
pub struct TargetServer {
    /// Where it is. One that neither `server` nor `context` names must be on this machine.
    pub client: ClientConfig,
    /// Its process on this machine.
    pub server_pid: Option<u32>,
    /// Where its metrics are; `None` for `/metrics` of the server itself.
    pub metrics_url: Option<String>,
}

/// What the watchers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, a connection a watcher.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Config {
    /// Of one watcher, for tests to change.
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self {
            watched: TargetServer::default(),
            compared: None,
            write_client: None,
            resource: "configmaps".to_owned(),
            namespace: None,
            all_namespaces: false,
            watchers: 1,
            connections: 1,
            protocol: Protocol::Http2,
            format: WireFormat::Json,
            selector: None,
            rate: Rate::Max,
            window: None,
            objects: 1,
            object_size: 2048,
            duration: Duration::from_secs(1),
            list_storm: 0,
            slow_watchers: 0,
            watch_list: false,
            threads: 1,
        }
    }

    /// How many watchers want each object.
    pub(super) fn watchers_of_an_object(&self) -> u64 {
        match self
            .selector
            .as_ref()
            .is_some_and(SelectorTemplate::is_per_watcher)
        {
            true => 1,
            false => u64::from(self.watchers),
        }
    }
}

impl Protocol {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}
