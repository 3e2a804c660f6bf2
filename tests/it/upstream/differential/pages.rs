//! Reads complete lists page by page: all pages from kubefan's cache, and alternating between
//! kubefan and the API server, which accept each other's continue tokens.

use http::HeaderMap;
use serde_json::{Value, json};

use super::fixture::{Fixture, parts, text, token};
use super::table::Protocol;
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Format, Item, decode_list, split_list};

/// The collections to walk with their formats: cluster-wide and namespaced, built-in and custom.
const COLLECTIONS: [(&str, &[Format]); 6] = [
    ("/api/v1/configmaps", &[Format::Json, Format::Protobuf]),
    (
        "/api/v1/namespaces/a-b/configmaps",
        &[Format::Json, Format::Protobuf],
    ),
    ("/api/v1/pods", &[Format::Json, Format::Protobuf]),
    ("/apis/batch/v1/jobs", &[Format::Json, Format::Protobuf]),
    (
        "/api/v1/namespaces/news/events",
        &[Format::Json, Format::Protobuf],
    ),
    ("/apis/suite.kubefan.io/v1/shapes", &[Format::Json]),
];
const SELECTORS: [&str; 4] = [
    "",
    "&labelSelector=app%3Da0",
    "&labelSelector=!app",
    "&fieldSelector=metadata.name!%3Dcm2",
];

/// The parameters of a walk: a list in pages.
struct PageWalk<'a> {
    collection: &'a str,
    selector: &'a str,
    format: Format,
    limit: usize,
    /// The clients that read the pages in turn, starting with the first page.
    clients: &'a [Client],
    /// True to remove the slash before a token's start key, as etcd's own lists spell it.
    without_slash: bool,
}

/// The result of a walk: the items of all pages, their common version, and the number of pages.
#[derive(Debug, PartialEq, Eq)]
struct WalkedList {
    items: Vec<Item>,
    version: String,
    pages: usize,
}

/// Walks every collection with every selector and page size, and compares the items with a complete
/// list. Returns the audit ids of the pages that must be answered from the cache.
pub(super) async fn all(fixture: &Fixture) -> Vec<String> {
    let through = fixture.through(Protocol::Http1);
    let direct = fixture.admin();
    let mut cached = Vec::new();
    for (collection, formats) in COLLECTIONS {
        for &format in formats {
            for selector in SELECTORS {
                let query = format!("{collection}?resourceVersion=0{selector}");
                let all = direct.list(&query, format).await.items;
                for limit in [1, 2, 3] {
                    let walk = PageWalk {
                        collection,
                        selector,
                        format,
                        limit,
                        clients: std::slice::from_ref(through),
                        without_slash: false,
                    };
                    let mut versions = Vec::new();
                    let own = walk.walk(fixture, &mut cached).await;
                    assert_eq!(own.items, all, "{collection} {selector} by {limit}");
                    versions.push(own.version);
                    for without_slash in [false, true] {
                        let in_turn = PageWalk {
                            clients: &[through.clone(), direct.clone()],
                            without_slash,
                            ..walk
                        };
                        let shared = in_turn.walk(fixture, &mut Vec::new()).await;
                        assert_eq!(shared.items, all, "{collection} {selector} by {limit}");
                        assert_eq!(shared.pages, own.pages, "{collection} {selector}");
                    }
                }
            }
        }
    }
    cached
}

impl PageWalk<'_> {
    /// Reads all pages: the first page with `NotOlderThan`, and the other pages at
    /// the version of the first page.
    async fn walk(&self, fixture: &Fixture, ids: &mut Vec<String>) -> WalkedList {
        let first = format!(
            "{}?limit={}{}&resourceVersion={}&resourceVersionMatch=NotOlderThan",
            self.collection,
            self.limit,
            self.selector,
            fixture.before()
        );
        let mut path = first;
        let mut walked = WalkedList {
            items: Vec::new(),
            version: String::new(),
            pages: 0,
        };
        loop {
            let id = format!("walk-{}", rand::random::<u64>());
            let client = &self.clients[walked.pages % self.clients.len()];
            let answer = page(client, &path, self.format, &id).await;
            ids.push(id);
            let list = decode_list(self.format, &answer.body);
            if walked.pages > 0 {
                assert_eq!(list.resource_version, walked.version, "{path}");
            }
            assert!(list.items.len() <= self.limit, "{path}");
            walked.version = list.resource_version;
            walked.items.extend(list.items);
            walked.pages += 1;
            let Some(token) = token_in(&answer, self.format) else {
                return walked;
            };
            let token = if self.without_slash {
                bare(&token)
            } else {
                token
            };
            let (limit, selector) = (self.limit, self.selector);
            path = format!(
                "{}?limit={limit}{selector}&continue={token}",
                self.collection
            );
        }
    }
}

async fn page(client: &Client, path: &str, format: Format, id: &str) -> Answer {
    let mut headers: HeaderMap = format.accept();
    headers.insert("audit-id", id.parse().expect("a header value"));
    let get = http::Method::GET;
    client
        .send(get, path, &headers, bytes::Bytes::new())
        .await
        .ok()
}

fn token_in(answer: &Answer, format: Format) -> Option<String> {
    let token = match format {
        Format::Json => text(&answer.json()["metadata"]["continue"]),
        Format::Protobuf => split_list(&answer.body).expect("a list").0,
    };
    (!token.is_empty()).then_some(token)
}

/// Encodes a token without the slash before its start key, as etcd's own lists spell it.
fn bare(token_: &str) -> String {
    let (version, start) = parts(token_);
    token(&version, start.trim_start_matches('/'))
}

/// Reads case 35: a cluster-wide list in pages, with a field selector for one namespace. The API
/// server loses the objects after the first page or repeats objects, because it applies the
/// namespace as a prefix to the first page only. kubefan's cache returns every object exactly once.
pub(super) async fn of_one_namespace(fixture: &Fixture) -> Vec<String> {
    let mut cached = Vec::new();
    for namespace in ["a", "a-b", "suite"] {
        let selector = format!("&fieldSelector=metadata.namespace%3D{namespace}");
        for format in [Format::Json, Format::Protobuf] {
            let inside = format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
            let wanted = fixture.admin().list(&inside, format).await.items;
            let walk = PageWalk {
                collection: "/api/v1/configmaps",
                selector: &selector,
                format,
                limit: 1,
                clients: std::slice::from_ref(fixture.through(Protocol::Http2)),
                without_slash: false,
            };
            let walked = walk.walk(fixture, &mut cached).await;
            assert_eq!(walked.items, wanted, "{namespace} {format:?}");
            // The API server continues kubefan's pages: its own tokens lack the namespace.
            let walk = PageWalk {
                clients: &[walk.clients[0].clone(), fixture.admin().clone()],
                ..walk
            };
            let walked = walk.walk(fixture, &mut Vec::new()).await;
            assert_eq!(walked.items, wanted, "{namespace} {format:?} in turn");
        }
    }
    let second = "/api/v1/configmaps?limit=1&fieldSelector=metadata.namespace%3Da";
    let direct = fixture.admin();
    let first = direct.get(second).await.ok();
    let token = token_in(&first, Format::Json).expect("a second page");
    let page = direct.get(&format!("{second}&continue={token}")).await;
    let items = decode_list(Format::Json, &page.ok().body).items;
    assert!(
        items.is_empty(),
        "the API server now pages one namespace correctly: move this case to rows of lists.txt"
    );
    cached
}

/// Reads case 23: the second page shows the state of the first page,
/// regardless of changes in between.
pub(super) async fn of_a_state_that_passed(fixture: &Fixture) -> Vec<String> {
    let (through, direct) = (fixture.through(Protocol::Http1), fixture.admin());
    let path = "/api/v1/namespaces/a/configmaps";
    let mut cached = Vec::new();
    for format in [Format::Json, Format::Protobuf] {
        let all = direct.list(path, format).await.items;
        let before = fixture.before();
        let first =
            format!("{path}?limit=2&resourceVersion={before}&resourceVersionMatch=NotOlderThan");
        let first = page(through, &first, format, "state-first").await;
        let token = token_in(&first, format).expect("a second page");
        // Create one object in the range of the second page, and delete another one there.
        let made = json!({ "metadata": { "name": "x-z" } });
        direct.create(path, &made).await.ok();
        direct.delete(&format!("{path}/x0")).await.ok();
        let next = format!("{path}?limit=5&continue={token}");
        let id = format!("state-{format:?}");
        let own = page(through, &next, format, &id).await;
        let directs = page(direct, &next, format, &id).await;
        assert_eq!(own.body, directs.body, "{format:?}");
        let first = decode_list(format, &first.body).items;
        let next = decode_list(format, &own.body).items;
        assert_eq!([first, next].concat(), all, "{format:?}");
        cached.push(id);
        direct.delete(&format!("{path}/x-z")).await.ok();
        direct
            .create(path, &json!({ "metadata": { "name": "x0" } }))
            .await
            .ok();
        fixture.catches_up("/api/v1/configmaps").await;
    }
    cached
}

/// Reads case 28, after a compaction: the 410 for an old token contains a new token. With the new
/// token, both servers return the rest of the list in its current state.
pub(super) async fn after_a_compaction(fixture: &Fixture) {
    let (through, direct) = (fixture.through(Protocol::Http1), fixture.admin());
    let path = "/apis/suite.kubefan.io/v1/planets";
    let old = token(&json!(1), "/earth\0");
    let expired = through.get(&format!("{path}?limit=1&continue={old}")).await;
    assert_eq!(expired.status, 410, "{expired}");
    let fresh = text(&expired.json()["metadata"]["continue"]);
    assert_eq!(parts(&fresh), (json!(-1), "earth\0".to_owned()));
    let rest = direct.list(path, Format::Json).await.items;
    for client in [through, direct] {
        let answer = client
            .get(&format!("{path}?limit=1&continue={fresh}"))
            .await
            .ok();
        let list = decode_list(Format::Json, &answer.body);
        assert_eq!(list.items, rest[1..], "{client:?}");
        let version: Value = json!(list.resource_version.parse::<u64>().expect("a number"));
        assert!(version.as_u64() > Some(1), "{answer}");
    }
}
