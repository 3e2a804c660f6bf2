//! kubefan with a fault proxy between it and the API server, and writes that go to the API server
//! directly.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::fault_proxy::{CutPoint, FaultProxy, RequestKind};

pub(crate) const RECOVERY: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(20);

/// A kubefan that reaches its upstream through a fault proxy, and a collection
/// in a new namespace to write to.
pub(crate) struct FaultyUpstream {
    /// A client that connects to the API server without the fault proxy and without kubefan.
    pub(crate) direct: Client,
    pub(crate) proxy: FaultProxy,
    pub(crate) kubefan: Kubefan,
    /// The path of the ConfigMap collection that the writes go to.
    pub(crate) path: String,
    /// Has the kubeconfig of kubefan.
    directory: TempDir,
}

impl FaultyUpstream {
    pub(crate) async fn start(server: &'static ApiServer) -> Self {
        Self::start_with(server, &[]).await
    }

    pub(crate) async fn start_with(server: &'static ApiServer, flags: &[&str]) -> Self {
        let proxy = FaultProxy::start(server).await;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = directory.path().join("config");
        kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
        let kubefan = Kubefan::start_with(&config, flags).await;
        let namespace = server.namespace("faults").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        Self {
            direct: server.client(),
            proxy,
            kubefan,
            path,
            directory,
        }
    }

    /// Kills kubefan and starts it again.
    pub(crate) async fn restart(self, flags: &[&str]) -> Self {
        self.kubefan.kill();
        let config = self.directory.path().join("config");
        let kubefan = Kubefan::start_with(&config, flags).await;
        Self { kubefan, ..self }
    }

    pub(crate) async fn create(&self, name: &str) -> String {
        let object = json!({ "metadata": { "name": name, "labels": { "side": "a" } } });
        let made = self.direct.create(&self.path, &object).await.ok().json();
        version(&made)
    }

    /// Changes the object `name`, or creates it if it does not exist, with labels that all
    /// selectors of the fault tests match. Returns the new resourceVersion.
    pub(crate) async fn touch(&self, name: &str) -> String {
        let labels = json!({ "side": "a", "touched": rand::random::<u32>().to_string() });
        let change = json!({ "metadata": { "labels": labels } });
        let changed = self
            .direct
            .merge(&format!("{}/{name}", self.path), &change)
            .await;
        if changed.status == 404 {
            return self.create(name).await;
        }
        version(&changed.ok().json())
    }

    pub(crate) async fn write(&self, number: u32) {
        let name = format!("object-{}", number % 17);
        let object = format!("{}/{name}", self.path);
        match number % 5 {
            0 => drop(self.direct.delete(&object).await),
            1 => {
                let side = if number.is_multiple_of(2) { "a" } else { "b" };
                let change = json!({ "metadata": { "labels": { "side": side } } });
                drop(self.direct.merge(&object, &change).await);
            }
            2 => drop(
                self.direct
                    .merge(&object, &json!({ "data": { "n": number.to_string() } }))
                    .await,
            ),
            _ => {
                let new_object = json!({ "metadata": { "name": name, "labels": { "side": "a" } } });
                drop(self.direct.create(&self.path, &new_object).await);
            }
        }
    }

    /// Runs `writes` while kubefan's upstream watch is silent, then expires the watch so that
    /// kubefan relists. The writes are therefore in a hole of the cache's history.
    pub(crate) async fn through_a_hole(&self, writes: impl Future<Output = ()>) {
        let lists = self.proxy.count(RequestKind::List, "/configmaps");
        let watches = self.proxy.count(RequestKind::Watch, "/configmaps");
        self.proxy.silence(true);
        writes.await;
        self.proxy.expire(RequestKind::Watch, "/configmaps", 1);
        self.proxy.cut_watches(CutPoint::Now);
        eventually("the relist", RECOVERY, async || {
            let lists = self.proxy.count(RequestKind::List, "/configmaps") - lists;
            let watches = self.proxy.count(RequestKind::Watch, "/configmaps") - watches;
            // The watch that gets 410, and the watch after the relist; a watch list is both.
            if watches >= 2 {
                Ok(())
            } else {
                Err(format!("{lists} lists, {watches} watches"))
            }
        })
        .await;
        self.proxy.silence(false);
    }
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .expect("an RV")
        .to_owned()
}

/// Opens a watch that starts at the resourceVersion `from`.
pub(crate) async fn open(client: &Client, path: &str, from: &str, format: Format) -> WatchReader {
    let path = format!("{path}?watch=1&resourceVersion={from}");
    client.watch(&path, format).await.expect("a stream")
}

/// Reads the next event; fails the test if the stream ends, or is silent for 20 s.
pub(crate) async fn next(stream: &mut WatchReader) -> Event {
    let event = within("an event", STEP, stream.next()).await;
    event.expect("a stream").expect("an event, not the end")
}

/// Reads the next event that is not a bookmark.
pub(crate) async fn next_change(stream: &mut WatchReader) -> Event {
    loop {
        match next(stream).await {
            Event::Bookmark { .. } => {}
            other => return other,
        }
    }
}
