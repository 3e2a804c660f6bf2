//! The client of an account: where it connects from, what it has in progress, and how far its
//! watches are behind. This is only shown; it limits nothing.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubefan_core::api::Resource;
use kubefan_core::cache::WatchStream;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::WatchMeter;

/// The most bytes of a `User-Agent` that are kept.
const MAX_USER_AGENT: usize = 256;

/// The client's end of one connection, and what the client does there.
pub struct Client {
    /// The client's address and port.
    pub address: SocketAddr,
    /// The protocol of the connection: `http1` or `http2`.
    pub protocol: &'static str,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// When the connection could take its first request.
    pub opened_at: Instant,
    requests: AtomicUsize,
    last_sender: Mutex<Sender>,
    watches: Mutex<Watches>,
}

/// The sender of a request. A proxy may send the requests of many on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The name of the user; `None` if kubefan has not found out a user.
    pub user: Option<Arc<str>>,
    /// The header `User-Agent`, up to 256 bytes; `None` if there is none.
    pub user_agent: Option<Arc<str>>,
}

/// An open watch that a cache answers.
#[derive(Clone)]
pub struct ClientWatch {
    /// The watched resource.
    pub resource: Arc<Resource>,
    /// What the watch has delivered, and how far it is behind.
    pub meter: Arc<WatchMeter>,
}

#[derive(Default)]
struct Watches {
    open: HashMap<u64, ClientWatch>,
    next: u64,
}

/// Counts a request as in progress until it is dropped.
pub struct RequestInProgress(Arc<Client>);

/// Lists a watch among those of its client until it is dropped.
pub struct ListedWatch {
    client: Arc<Client>,
    key: u64,
    meter: Arc<WatchMeter>,
}

// === impl Client ===

impl Client {
    /// Creates the client of a connection that was opened just now.
    pub fn new(address: SocketAddr, protocol: &'static str, is_tls: bool) -> Self {
        Self {
            address,
            protocol,
            is_tls,
            opened_at: Instant::now(),
            requests: AtomicUsize::new(0),
            last_sender: Mutex::default(),
            watches: Mutex::default(),
        }
    }

    /// Counts a request as in progress.
    pub fn begin_request(self: &Arc<Self>) -> RequestInProgress {
        self.requests.fetch_add(1, Ordering::Relaxed);
        RequestInProgress(Arc::clone(self))
    }

    /// Returns the number of requests in progress, open watches included.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Notes the user and the `User-Agent` of a request.
    pub fn note_sender(&self, user: Option<&str>, user_agent: Option<&str>) {
        let user_agent = user_agent.map(|text| text.get(..MAX_USER_AGENT).unwrap_or(text));
        let mut sender = self.last_sender.lock();
        replace(&mut sender.user, user);
        replace(&mut sender.user_agent, user_agent);
    }

    /// Returns the sender of the last request.
    pub fn last_sender(&self) -> Sender {
        self.last_sender.lock().clone()
    }

    /// Lists a watch of `resource` with the events of `stream`. Without a stream, nothing is known
    /// about its progress before [`WatchMeter::record`].
    pub fn list_watch(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        stream: Option<&WatchStream>,
    ) -> ListedWatch {
        let meter = Arc::new(WatchMeter::new(stream));
        let watch = ClientWatch {
            resource: Arc::clone(resource),
            meter: Arc::clone(&meter),
        };
        let mut watches = self.watches.lock();
        let key = watches.next;
        watches.next += 1;
        watches.open.insert(key, watch);
        ListedWatch {
            client: Arc::clone(self),
            key,
            meter,
        }
    }

    /// Returns the listed watches, in no order.
    pub fn watches(&self) -> Vec<ClientWatch> {
        self.watches.lock().open.values().cloned().collect()
    }
}

/// Sets `known` to `text`. Most requests of a connection have the same text.
fn replace(known: &mut Option<Arc<str>>, text: Option<&str>) {
    if known.as_deref() != text {
        *known = text.map(Arc::from);
    }
}

// === impl RequestInProgress ===

impl fmt::Debug for RequestInProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestInProgress")
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl ListedWatch ===

impl ListedWatch {
    /// Returns the meter of the watch.
    pub fn meter(&self) -> &Arc<WatchMeter> {
        &self.meter
    }
}

impl Drop for ListedWatch {
    fn drop(&mut self) {
        let watch = self.client.watches.lock().open.remove(&self.key);
        // Its cache may be dropped with it, so the lock is released first.
        drop(watch);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kubefan_core::api::{GroupVersionResource, ResourceVersion};
    use kubefan_core::cache;
    use kubefan_core::cache::WatchFrom;

    use super::*;

    fn client() -> Arc<Client> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Arc::new(Client::new(address, "http2", true))
    }

    fn pods() -> Arc<Resource> {
        Arc::new(Resource {
            gvr: GroupVersionResource::new("", "v1", "pods"),
            kind: "Pod".to_owned(),
            singular: "pod".to_owned(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        })
    }

    #[test]
    fn requests_count_until_they_end() {
        let client = client();
        let (first, second) = (client.begin_request(), client.begin_request());
        assert_eq!(client.requests(), 2);
        drop(first);
        assert_eq!(client.requests(), 1);
        drop(second);
        assert_eq!(client.requests(), 0);
    }

    #[test]
    fn the_last_sender_counts_and_long_agents_are_cut() {
        let client = client();
        assert_eq!(client.last_sender(), Sender::default());
        client.note_sender(Some("jane"), Some(&"x".repeat(1_000)));
        let sender = client.last_sender();
        assert_eq!(sender.user.as_deref(), Some("jane"));
        let agent = sender.user_agent.expect("an agent");
        assert_eq!(agent.len(), MAX_USER_AGENT);
        client.note_sender(None, Some("kubectl"));
        let sender = client.last_sender();
        assert_eq!(sender.user, None);
        assert_eq!(sender.user_agent.as_deref(), Some("kubectl"));
    }

    #[test]
    fn watches_are_listed_until_they_end_and_learn_their_progress_late() {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(1));
        let stream = reader.watch(WatchFrom::Tip, Arc::default());
        let stream = stream.expect("the cache is ready");
        let client = client();
        let at_once = client.list_watch(&pods(), Some(&stream));
        let late = client.list_watch(&pods(), None);
        let known = || {
            let watches = client.watches();
            watches
                .iter()
                .filter(|watch| watch.meter.watch_progress().is_some())
                .count()
        };
        assert_eq!((client.watches().len(), known()), (2, 1));
        late.meter().record(&stream);
        assert_eq!((client.watches().len(), known()), (2, 2));
        drop((at_once, late));
        assert!(client.watches().is_empty());
    }
}
