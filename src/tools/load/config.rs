//! The settings of a load test.

use std::time::Duration;

use kubefan_core::api::WireFormat;
use kubefan_core::upstream::ClientConfig;

use super::selector::SelectorTemplate;
use super::watch::checker::SelectedObjects;

/// The validated settings of a load test.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server that the test watches.
    pub watched: TargetServer,
    /// A second server, which is tested in the same way after the first; `None` to test one server.
    pub compared: Option<TargetServer>,
    /// The server where objects are created and changed; `None` for the watched server.
    pub written: Option<TargetServer>,
    /// The resource, in any form that kubectl accepts.
    pub resource: String,
    /// The namespace of the objects; `None` for a generated name. The run creates a missing
    /// namespace and deletes it at the end. In an existing namespace it deletes only its own
    /// objects.
    pub namespace: Option<String>,
    /// True if the watchers watch all namespaces.
    pub all_namespaces: bool,
    /// The number of watchers; at least one.
    pub watchers: u32,
    /// The number of connections that the watchers share under HTTP/2; at least one. Ignored under
    /// HTTP/1.1, which needs one connection per watcher.
    pub connections: u32,
    /// The HTTP version of the watchers' connections.
    pub protocol: Protocol,
    /// The wire format of watches and lists.
    pub format: WireFormat,
    /// The selector of each watcher; `None` if all watchers select every object.
    pub selector: Option<SelectorTemplate>,
    /// The scheduled writes per second; `None` to write as fast as the server acknowledges, with at
    /// most one write in flight per object.
    pub rate: Option<f64>,
    /// Without a rate, the limit on writes that have not yet reached every watcher; `None` for no
    /// limit.
    pub window: Option<u32>,
    /// The number of objects; at least one.
    pub objects: u32,
    /// The size of an object in bytes, as the server encodes it in JSON.
    pub object_size: usize,
    /// The duration of the writing phase.
    pub duration: Duration,
    /// The number of clients that repeatedly list all objects during the writing phase; 0 for none.
    pub list_storm: u32,
    /// The number of additional watchers that open a watch and do not read it.
    pub slow_watchers: u32,
    /// True if watchers get the initial objects as a watch-list (`sendInitialEvents=true`).
    pub watch_list: bool,
    /// True if the test cuts all connections of watchers at the end, and waits until every watcher
    /// has received an event of a later write.
    pub resume: bool,
    /// The number of receiving threads; at least one.
    pub threads: u32,
}

/// A server under test.
#[derive(Clone, Debug, Default)]
pub struct TargetServer {
    /// How to connect to the server. If neither `server` nor `context` is set here, the server must
    /// be on this machine.
    pub client: ClientConfig,
    /// The server's name in the report; `None` for its URL.
    pub name: Option<String>,
    /// The id of the server's process on this machine; `None` if unknown.
    pub server_pid: Option<u32>,
    /// The URL of the server's metrics; `None` for `/metrics` on the server itself.
    pub metrics_url: Option<String>,
}

/// The HTTP version of the watchers' connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, with one connection per watcher.
    Http1,
    /// HTTP/2, with connections that the watchers share.
    Http2,
}

impl Config {
    /// Returns the number of watchers that select each object: one if each watcher has its own
    /// selector, else all of them.
    pub(super) fn watchers_of_an_object(&self) -> u64 {
        match &self.selector {
            Some(selector) if selector.is_per_watcher() => 1,
            _ => u64::from(self.watchers),
        }
    }

    /// Returns the objects that watcher `number` selects: every `watchers`th object from `number`
    /// on if each watcher has its own selector, else all of them.
    pub(super) fn selected_objects(&self, number: u32) -> SelectedObjects {
        let (first, step) = match &self.selector {
            Some(selector) if selector.is_per_watcher() => (number, self.watchers),
            _ => (0, 1),
        };
        SelectedObjects {
            first,
            step,
            objects: self.objects,
        }
    }
}

impl Protocol {
    /// Returns the name of the protocol in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Config {
        /// Returns a configuration with one watcher and one object, which tests adapt.
        pub(crate) fn for_tests() -> Self {
            Self {
                watched: TargetServer::default(),
                compared: None,
                written: None,
                resource: "configmaps".to_owned(),
                namespace: None,
                all_namespaces: false,
                watchers: 1,
                connections: 1,
                protocol: Protocol::Http2,
                format: WireFormat::Json,
                selector: None,
                rate: None,
                window: None,
                objects: 1,
                object_size: 2048,
                duration: Duration::from_secs(1),
                list_storm: 0,
                slow_watchers: 0,
                watch_list: false,
                resume: false,
                threads: 1,
            }
        }
    }

    #[test]
    fn every_object_is_selected_by_one_watcher_or_by_all() {
        let per_watcher: SelectorTemplate = "app=load-{i}".parse().expect("a selector");
        let shared: SelectorTemplate = "app=load".parse().expect("a selector");
        for (watchers, objects) in [(1, 1), (3, 20), (20, 3), (7, 7)] {
            let total = |selector: Option<&SelectorTemplate>| -> usize {
                let config = Config {
                    selector: selector.cloned(),
                    watchers,
                    objects,
                    ..Config::for_tests()
                };
                let counts = (0..watchers).map(|number| config.selected_objects(number).count());
                counts.sum()
            };
            assert_eq!(total(Some(&per_watcher)), objects as usize);
            assert_eq!(total(Some(&shared)), (watchers * objects) as usize);
            assert_eq!(total(None), (watchers * objects) as usize);
        }
    }
}
