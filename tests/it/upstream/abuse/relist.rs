//! A relist that finds very many differences, while many streams are open on one cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::time::sleep;

use super::scene::{Scene, scaled};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::proxies::fault_proxy::{CutPoint, RequestKind};

/// The number of objects that differ.
const OBJECTS: usize = 100_000;
const STREAMS: usize = 2_000;
const NAMESPACES: usize = 100;
/// The number of objects that are written concurrently.
const WRITERS: usize = 16;
/// How long the honest clients are measured after the relist.
const DURATION: Duration = Duration::from_secs(15);
/// The longest time until the relist is done.
const RELIST: Duration = Duration::from_secs(120);
const COLLECTION: &str = "/apis/coordination.k8s.io/v1";

/// Objects that the attacked kubefan has in its cache as they were before they changed.
pub(super) struct ChangedUnseen {
    namespaces: Vec<String>,
    /// The version of the cache.
    version: String,
    per_namespace: usize,
}

impl ChangedUnseen {
    /// Creates the objects, and changes all of them while kubefan has no watch of them.
    pub(super) async fn new(scene: &Scene) -> Self {
        let client = scene.server.client();
        let count = scaled(NAMESPACES);
        let per_namespace = scaled(OBJECTS).div_ceil(count);
        let mut namespaces = Vec::new();
        for _ in 0..count {
            namespaces.push(scene.server.namespace("relist").await);
        }
        let objects = || {
            namespaces.iter().flat_map(move |namespace| {
                let collection = format!("{COLLECTION}/namespaces/{namespace}/leases");
                (0..per_namespace).map(move |number| (collection.clone(), format!("l-{number}")))
            })
        };
        let creations = objects().map(|(collection, name)| {
            let client = &client;
            let lease = json!({
                "metadata": { "name": name },
                "spec": { "holderIdentity": "before" },
            });
            async move {
                retry(async || client.create(&collection, &lease).await).await;
            }
        });
        let creations = stream::iter(creations).buffer_unordered(WRITERS);
        creations.collect::<()>().await;
        // The first read starts kubefan's informer.
        let cached = format!("{COLLECTION}/leases?resourceVersion=0");
        for kubefan in [&scene.victim, &scene.twin] {
            let reader = kubefan.client();
            let all = retry(async || reader.get(&cached).await).await.json();
            let all = all["items"].as_array().map_or(0, Vec::len);
            // The API server has a further lease for itself.
            assert!(all >= count * per_namespace, "{all} leases");
        }
        let proxy = scene.victims_upstream();
        proxy.refuse(RequestKind::Watch, "/leases", u32::MAX);
        proxy.cut_watches(CutPoint::Now);
        let list = scene.victim.client();
        let list = list.get(&format!("{cached}&limit=1")).await.ok().json();
        let version = list["metadata"]["resourceVersion"].as_str();
        let version = version.expect("a version").to_owned();
        let changes = objects().map(|(collection, name)| {
            let client = &client;
            let change = json!({ "spec": { "holderIdentity": "after" } });
            let path = format!("{collection}/{name}");
            async move {
                retry(async || client.merge(&path, &change).await).await;
            }
        });
        let changes = stream::iter(changes).buffer_unordered(WRITERS);
        changes.collect::<()>().await;
        Self {
            namespaces,
            version,
            per_namespace,
        }
    }

    /// Opens the streams, lets kubefan find the differences, and checks that every stream gets
    /// those of its namespace.
    pub(super) async fn relist(&self, scene: &Scene) {
        let received: Vec<_> = (0..scaled(STREAMS))
            .map(|_| Arc::new(AtomicUsize::new(0)))
            .collect();
        let open = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..scaled(20))
            .map(|_| Client::http2(scene.victim.url(), Connector::plain()))
            .collect();
        let mut readers = tokio::task::JoinSet::new();
        for (number, received) in received.iter().enumerate() {
            let namespace = &self.namespaces[number % self.namespaces.len()];
            let path = format!(
                "{COLLECTION}/namespaces/{namespace}/leases?watch=1&resourceVersion={}",
                self.version
            );
            let client = clients[number % clients.len()].clone();
            let (open, received) = (open.clone(), received.clone());
            readers.spawn(read(client, path, open, received));
        }
        eventually("open streams", RELIST, async || {
            let open = open.load(Ordering::Relaxed);
            (open == received.len()).then_some(()).ok_or(open)
        })
        .await;
        let proxy = scene.victims_upstream();
        proxy.expire(RequestKind::Watch, "/leases", 1);
        proxy.refuse(RequestKind::Watch, "/leases", 0);
        eventually("the relist", RELIST, async || {
            let least = received.iter().map(|count| count.load(Ordering::Relaxed));
            let least = least.min().unwrap_or_default();
            (least == self.per_namespace).then_some(()).ok_or(least)
        })
        .await;
        sleep(DURATION).await;
        let most = received.iter().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(most.max(), Some(self.per_namespace), "an event came twice");
        assert!(readers.try_join_next().is_none(), "a stream has ended");
    }
}

/// Sends a request again as long as the API server has too much to do.
async fn retry(send: impl AsyncFn() -> Answer) -> Answer {
    let mut answer = send().await;
    while answer.status == StatusCode::TOO_MANY_REQUESTS {
        answer = send().await;
    }
    answer.ok()
}

/// Reads a watch for ever, and counts the changes.
async fn read(client: Client, path: String, open: Arc<AtomicUsize>, received: Arc<AtomicUsize>) {
    let none = HeaderMap::new();
    let response = client.open(Method::GET, &path, &none, Bytes::new()).await;
    let mut body = response.expect("an answer").into_body();
    open.fetch_add(1, Ordering::Relaxed);
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("the stream stays open");
        rest.extend_from_slice(frame.data_ref().expect("a watch has no trailers"));
        let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        // A debug build reads two million lines here, so only their first bytes are compared.
        for line in rest[..end].split(|byte| *byte == b'\n') {
            let is_change = line.starts_with(br#"{"type":"MODIFIED""#);
            assert!(is_change, "{}", String::from_utf8_lossy(line));
            received.fetch_add(1, Ordering::Relaxed);
        }
        rest.drain(..=end);
    }
    let received = received.load(Ordering::Relaxed);
    panic!("the stream ended after {received} changes");
}
