//! The page of the clients: their connections, and what they do.

use std::cmp::Reverse;
use std::sync::Arc;

use kubefan_core::api::Status;
use kubefan_core::cache::Behind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::{Account, Client, ClientWatch};
use crate::server::admin::api::page::{Page, now, seconds_since};
use crate::server::admin::api::sources::Sources;

/// The most connections of the page.
const MOST: usize = 100;

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
    /// The connections that hold the most memory, at most 100.
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
    /// The watch that is behind by the most events; absent if none is behind.
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
        let open = open.filter_map(|account| Some((account, account.client()?)));
        let mut open: Vec<_> = open
            .map(|(account, client)| (account.held_bytes(), account, client))
            .collect();
        open.sort_by_key(|(held, _, client)| (Reverse(*held), client.address));
        let clients = || open.iter().map(|(_, _, client)| client);
        Self {
            time: now(),
            total: open.len(),
            watches: clients().map(|client| client.watch_count()).sum(),
            requests: clients().map(|client| client.requests()).sum(),
            held_bytes: open.iter().map(|(held, ..)| held).sum(),
            items: open
                .iter()
                .take(MOST)
                .map(|(held, account, client)| Connection::of(*held, account, client, &number_of))
                .collect(),
        }
    }
}

impl Connection {
    fn of(held: u64, account: &Account, client: &Client, number_of: impl Fn(&str) -> u64) -> Self {
        let sender = client.last_sender();
        let watches = client.watches();
        Self {
            address: client.address.to_string(),
            protocol: client.protocol,
            tls: client.is_tls,
            age_seconds: seconds_since(client.opened_at),
            user_number: sender.user.as_deref().map(number_of),
            user_agent: sender.user_agent.as_deref().map(str::to_owned),
            requests: client.requests(),
            watches: watches.len(),
            held_bytes: held,
            unread_bytes: account.unread_bytes(),
            slowest_watch: SlowWatch::of(&watches),
        }
    }
}

impl SlowWatch {
    /// Returns the watch that is behind by the most events, or `None` if none is behind.
    fn of(watches: &[ClientWatch]) -> Option<Self> {
        let behind = |watch: &ClientWatch| watch.meter.watch_progress()?.behind();
        let behind = watches
            .iter()
            .filter_map(|watch| Some((behind(watch)?, watch)));
        let behind = behind.filter(|(behind, _)| behind.events > 0);
        let (Behind { events, since }, watch) = behind.max_by_key(|(behind, _)| behind.events)?;
        let gvr = &watch.resource.gvr;
        Some(Self {
            group: gvr.group.clone(),
            version: gvr.version.clone(),
            resource: gvr.resource.clone(),
            behind_events: events,
            behind_seconds: since.map(seconds_since),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use kubefan_core::api::{
        EventType, GroupVersionResource, Object, ObjectKey, ObjectValues, Resource, ResourceVersion,
    };
    use kubefan_core::cache;
    use kubefan_core::cache::WatchFrom;
    use serde_json::json;

    use super::*;
    use crate::ledger::{Ledger, Limits, MemoryKind};

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

    #[tokio::test(start_paused = true)]
    async fn the_slowest_watch_is_the_one_with_the_most_events_to_take() {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(1));
        let resource = |plural: &str| {
            Arc::new(Resource {
                gvr: GroupVersionResource::new("apps", "v1", plural),
                kind: String::new(),
                singular: String::new(),
                short_names: Vec::new(),
                namespaced: true,
                verbs: Vec::new(),
            })
        };
        let ledger = Ledger::new(Limits::default());
        let account = open(&ledger, 1);
        let client = client(&account);
        let watch = || reader.watch(WatchFrom::Tip, Arc::default()).expect("ready");
        let slow = watch();
        let listed = client.list_watch(&resource("deployments"), Some(&slow));
        assert_eq!(SlowWatch::of(&client.watches()), None);
        for version in 2..=3 {
            let key = ObjectKey::new(None, "a");
            let values = ObjectValues::default();
            let object = Object::new(key, ResourceVersion(version), &values, "{}".into());
            let event_type = match version {
                2 => EventType::Added,
                _ => EventType::Modified,
            };
            let applied = writer.apply(event_type, object, None);
            applied.expect("a newer version");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let quick = watch();
        let others = [
            client.list_watch(&resource("pods"), Some(&quick)),
            client.list_watch(&resource("nodes"), None),
        ];
        let expected = SlowWatch {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            behind_events: 2,
            behind_seconds: Some(2.0),
        };
        assert_eq!(SlowWatch::of(&client.watches()), Some(expected));
        drop((listed, others));
    }
}
