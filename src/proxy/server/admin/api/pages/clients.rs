//! The page of the clients: their connections, and what they do.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::{Account, Client, ClientWatch};
use crate::server::admin::api::page::{Page, now, seconds_since};
use crate::server::admin::api::sources::Sources;

/// The most connections of the page.
const MOST: usize = 100;
/// The connections of the page with the slowest watches, if there are more connections than it has.
const MOST_SLOW: usize = 10;

/// For how long a watch has been behind, and by how many events.
type Slowness = (Duration, u64);

/// The connections of clients, those that hold the most memory first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Clients {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The number of open connections, even if the list has fewer.
    total: usize,
    /// Watches of all connections that caches answer.
    watches: usize,
    /// Requests in progress of all connections, watches included.
    requests: usize,
    /// Bytes that are held for all connections.
    held_bytes: u64,
    /// The connections that hold the most memory, at most 100. If there are more, the ten with the
    /// slowest watches are among them.
    items: Vec<Connection>,
}

/// A connection of a client.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Connection {
    /// The client's address and port. Behind a load balancer that sends no PROXY header, all
    /// clients have its address.
    address: String,
    /// The protocol: http1 or http2.
    protocol: &'static str,
    /// Whether the connection is encrypted.
    tls: bool,
    /// Seconds since the connection could take its first request.
    age_seconds: f64,
    /// The number of the user of the last request; the page users has its name. Absent if kubefan
    /// has not found out a user. Numbers are the same until kubefan ends, and random.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_number: Option<u64>,
    /// The header User-Agent of the last request, up to 256 bytes. Clients may send anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    /// Requests in progress, watches included.
    requests: usize,
    /// Open watches that caches answer. A forwarded watch is one of the requests only.
    watches: usize,
    /// Bytes that are held for the connection: state, bodies and buffers.
    held_bytes: u64,
    /// Those of them that wait because the client does not read them.
    unread_bytes: u64,
    /// The watch that has been behind for the longest time; absent if none is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest_watch: Option<SlowWatch>,
}

/// A watch with a client that has not taken all events.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SlowWatch {
    /// The API group of the watched resource; empty for the core group.
    group: String,
    /// The version of the API.
    version: String,
    /// The plural name of the resource.
    resource: String,
    /// Events that the watch has not taken from the cache, or has taken since it last had all.
    /// So this may be up to 64 too many.
    behind_events: u64,
    /// Seconds since the first of these events that the cache still has was received.
    #[serde(skip_serializing_if = "Option::is_none")]
    behind_seconds: Option<f64>,
}

/// An open connection of a client.
struct Open<'a> {
    held: u64,
    account: &'a Account,
    client: &'a Arc<Client>,
    watches: usize,
    slowest: Option<(Slowness, SlowWatch)>,
}

impl Page for Clients {
    const NAME: &'static str = "clients";
    const SUMMARY: &'static str =
        "The connections of clients: memory, requests, watches, and the slowest watch of each.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let accounts = sources.ledger.accounts();
        let number_of = |user: &str| sources.number_of(user);
        Ok(Self::of(&accounts, number_of))
    }
}

impl Clients {
    fn of(accounts: &[Arc<Account>], number_of: impl Fn(&str) -> u64) -> Self {
        let open = accounts.iter();
        let mut open: Vec<_> = open.filter_map(|account| Open::of(account)).collect();
        let (total, watches) = (open.len(), open.iter().map(|open| open.watches).sum());
        let requests = open.iter().map(|open| open.client.requests()).sum();
        let held_bytes = open.iter().map(|open| open.held).sum();
        keep_shown(&mut open);
        Self {
            time: now(),
            total,
            watches,
            requests,
            held_bytes,
            items: open
                .into_iter()
                .map(|open| Connection::of(open, &number_of))
                .collect(),
        }
    }
}

/// Sorts `open` by memory, the most first, and keeps those that the page shows.
fn keep_shown(open: &mut Vec<Open<'_>>) {
    let by_memory = |open: &Open<'_>| (Reverse(open.held), open.client.address);
    open.sort_by_key(by_memory);
    if open.len() > MOST {
        // Stable, so those that are equally slow stay sorted by memory.
        open[MOST - MOST_SLOW..].sort_by_key(|open| Reverse(open.slowness()));
        open.truncate(MOST);
        open.sort_by_key(by_memory);
    }
}

impl<'a> Open<'a> {
    /// Returns `None` if the connection can't take requests yet.
    fn of(account: &'a Account) -> Option<Self> {
        let client = account.client()?;
        let watches = client.watches();
        Some(Self {
            held: account.held_bytes(),
            account,
            client,
            watches: watches.len(),
            slowest: SlowWatch::of(&watches),
        })
    }

    fn slowness(&self) -> Option<Slowness> {
        self.slowest.as_ref().map(|(slowness, _)| *slowness)
    }
}

impl Connection {
    fn of(open: Open<'_>, number_of: impl Fn(&str) -> u64) -> Self {
        let client = open.client;
        let sender = client.last_sender();
        Self {
            address: client.address.to_string(),
            protocol: client.protocol,
            tls: client.is_tls,
            age_seconds: seconds_since(client.opened_at),
            user_number: sender.user.as_deref().map(number_of),
            user_agent: sender.user_agent.as_deref().map(str::to_owned),
            requests: client.requests(),
            watches: open.watches,
            held_bytes: open.held,
            unread_bytes: open.account.unread_bytes(),
            slowest_watch: open.slowest.map(|(_, watch)| watch),
        }
    }
}

impl SlowWatch {
    /// Returns the watch that has been behind for the longest time, and of those with the same time
    /// the one with the most events. Returns `None` if none is behind.
    fn of(watches: &[ClientWatch]) -> Option<(Slowness, Self)> {
        let behind = watches.iter().filter_map(|watch| {
            let behind = watch.meter.watch_progress()?.behind()?;
            let waited = behind.since.map(|since| since.elapsed());
            let slowness = (waited.unwrap_or_default(), behind.events);
            (behind.events > 0).then_some((slowness, behind, watch))
        });
        let (slowness, behind, watch) = behind.max_by_key(|(slowness, ..)| *slowness)?;
        let gvr = &watch.resource.gvr;
        let slowest = Self {
            group: gvr.group.clone(),
            version: gvr.version.clone(),
            resource: gvr.resource.clone(),
            behind_events: behind.events,
            behind_seconds: behind.since.map(seconds_since),
        };
        Some((slowness, slowest))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use kubefan_core::api::{
        EventType, GroupVersionResource, Object, ObjectKey, ObjectValues, Resource, ResourceVersion,
    };
    use kubefan_core::cache;
    use kubefan_core::cache::{Reader, WatchFrom, WatchStream, Writer};
    use serde_json::json;

    use super::*;
    use crate::ledger::{Ledger, Limits, ListedWatch, MemoryKind};

    /// Opens an account of a client with this port.
    fn open(ledger: &Ledger, port: u16) -> Arc<Account> {
        let account = ledger.open_account();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        account.set_client(Client::new(address, "http2", true));
        account
    }

    fn client(account: &Account) -> &Arc<Client> {
        account.client().expect("it was set")
    }

    #[tokio::test(start_paused = true)]
    async fn the_connections_with_the_most_bytes_are_shown_and_all_are_counted() {
        let ledger = Ledger::new(Limits::default());
        let accounts: Vec<_> = (1..=150).map(|port| open(&ledger, port)).collect();
        // A connection that is not open yet is not counted.
        let handshaking = ledger.open_account();
        let large = &accounts[120];
        let charge = large.charge(MemoryKind::Body, 1 << 20).expect("room");
        let request = client(large).begin_request();
        client(large).note_sender(Some("jane"), Some("kubectl"));
        tokio::time::advance(Duration::from_secs(3)).await;
        let page = Clients::of(&ledger.accounts(), |user| u64::from(user == "jane"));
        assert_eq!((page.total, page.items.len()), (150, MOST));
        assert_eq!((page.requests, page.watches), (1, 0));
        assert_eq!(page.held_bytes, large.held_bytes());
        let first = serde_json::to_value(&page.items[0]).expect("JSON");
        let expected = json!({
            "address": "127.0.0.1:121", "protocol": "http2", "tls": true, "ageSeconds": 3.0,
            "userNumber": 1, "userAgent": "kubectl", "requests": 1, "watches": 0,
            "heldBytes": large.held_bytes(), "unreadBytes": 0,
        });
        assert_eq!(first, expected);
        assert_eq!(page.items[1].address, "127.0.0.1:1");
        assert_eq!(page.items[1].user_number, None);
        drop((charge, request, handshaking));
    }

    /// Returns a cache that has an empty list at version 1.
    fn ready() -> (Writer, Reader) {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(1));
        (writer, reader)
    }

    /// Adds an object at `version`.
    fn add(writer: &mut Writer, version: u64) {
        let key = ObjectKey::new(None, &version.to_string());
        let values = ObjectValues::default();
        let object = Object::new(key, ResourceVersion(version), &values, "{}".into());
        let applied = writer.apply(EventType::Added, object, None);
        applied.expect("a newer version");
    }

    /// Lists a watch of changes after now, which nothing reads.
    fn watch(client: &Arc<Client>, plural: &str, reader: &Reader) -> (WatchStream, ListedWatch) {
        let resource = Arc::new(Resource {
            gvr: GroupVersionResource::new("apps", "v1", plural),
            kind: String::new(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        });
        let stream = reader.watch(WatchFrom::Tip, Arc::default());
        let stream = stream.expect("the cache is ready");
        let listed = client.list_watch(&resource, Some(&stream));
        (stream, listed)
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_watch_is_the_one_that_has_been_behind_for_the_longest_time() {
        let ledger = Ledger::new(Limits::default());
        let account = open(&ledger, 1);
        let client = client(&account);
        let [mut long, mut many] = [ready(), ready()];
        let watches = [
            watch(client, "deployments", &long.1),
            watch(client, "replicasets", &many.1),
        ];
        assert_eq!(SlowWatch::of(&client.watches()), None);
        add(&mut long.0, 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        for version in 2..=5 {
            add(&mut many.0, version);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        // Has all.
        let quick = watch(client, "pods", &many.1);
        let expected = SlowWatch {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            behind_events: 1,
            behind_seconds: Some(2.0),
        };
        let found = SlowWatch::of(&client.watches());
        assert_eq!(found.map(|(_, watch)| watch), Some(expected));
        drop((watches, quick));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connections_with_the_slowest_watches_are_shown() {
        let ledger = Ledger::new(Limits::default());
        let accounts: Vec<_> = (1..=150).map(|port| open(&ledger, port)).collect();
        let (mut writer, reader) = ready();
        // By memory and address, this connection is the last one.
        let slow = watch(client(&accounts[149]), "deployments", &reader);
        add(&mut writer, 2);
        let page = Clients::of(&ledger.accounts(), |_| 0);
        assert_eq!((page.total, page.items.len()), (150, MOST));
        let is_slow = |item: &Connection| item.slowest_watch.is_some();
        let slowest: Vec<_> = page.items.iter().filter(|item| is_slow(item)).collect();
        assert_eq!(slowest.len(), 1);
        assert_eq!(slowest[0].address, "127.0.0.1:150");
        drop(slow);
    }
}
