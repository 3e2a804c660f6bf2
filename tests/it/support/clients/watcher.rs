//! A client that watches until it is dropped. It resumes after the end of a stream and relists
//! after an ERROR event.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::clients::client::Client;
use crate::support::clients::fold::Fold;
use crate::support::clients::frames::{Format, List, decode_list};
use crate::support::poll::eventually;

/// How a watcher gets its initial objects.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// A watch from resourceVersion 0, which begins with the objects as initial events.
    Zero,
    /// A LIST without a resourceVersion, then a watch from the list's version.
    List,
}

/// A running watcher; its task is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    state: Arc<WatcherState>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct WatcherState {
    fold: Mutex<Fold>,
    cut: Notify,
    counts: Mutex<Counts>,
}

/// How often a watcher opened streams, had to relist, and failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) streams: u32,
    pub(crate) relists: u32,
    /// Streams that broke or could not be opened, and LISTs that failed.
    pub(crate) failures: u32,
}

impl Watcher {
    /// Starts to watch the collection `path`. `selector` is added to the query unchanged.
    pub(crate) fn start(
        client: &Client,
        path: &str,
        selector: &str,
        format: Format,
        from: Start,
    ) -> Self {
        let state = Arc::new(WatcherState::default());
        let run = WatchLoop {
            client: client.clone(),
            path: path.to_owned(),
            selector: selector.to_owned(),
            format,
            state: state.clone(),
        };
        Self {
            state,
            task: tokio::spawn(run.run(from)),
        }
    }

    pub(crate) fn fold(&self) -> Fold {
        self.state.fold.lock().clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.state.counts.lock()
    }

    /// Closes the current stream; the watcher resumes from its last resourceVersion.
    pub(crate) fn cut(&self) {
        self.state.cut.notify_waiters();
    }

    /// Waits until the watcher has exactly the objects of the list.
    ///
    /// # Panics
    /// Panics after `limit`, with the differences.
    pub(crate) async fn reaches(&self, what: &str, list: &List, limit: Duration) {
        eventually(what, limit, async || {
            let fold = self.state.fold.lock();
            fold.compare(list).map_err(|difference| {
                format!(
                    "{difference} (RV {}, list {})",
                    fold.resource_version(),
                    list.resource_version
                )
            })
        })
        .await;
    }

    /// Waits until the watcher has received all initial objects.
    pub(crate) async fn synced(&self) {
        eventually("the initial events", Duration::from_secs(20), async || {
            let fold = self.state.fold.lock();
            if fold.synced {
                Ok(())
            } else {
                Err(format!("{:?}", self.counts()))
            }
        })
        .await;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct WatchLoop {
    client: Client,
    path: String,
    selector: String,
    format: Format,
    state: Arc<WatcherState>,
}

impl WatchLoop {
    async fn run(self, from: Start) {
        let mut listed = matches!(from, Start::List) && self.relist().await;
        loop {
            if matches!(from, Start::List) && !listed {
                sleep(Duration::from_millis(100)).await;
                listed = self.relist().await;
                continue;
            }
            let errors = self.state.fold.lock().errors.len();
            if let Err(_reason) = self.stream().await {
                self.state.counts.lock().failures += 1;
                sleep(Duration::from_millis(20)).await;
            }
            if self.state.fold.lock().errors.len() > errors {
                self.state.counts.lock().relists += 1;
                listed = false;
                self.state.fold.lock().forget();
            }
        }
    }

    async fn relist(&self) -> bool {
        let path = self.query("");
        let answer = self
            .client
            .try_send(
                http::Method::GET,
                &path,
                &self.format.accept(),
                bytes::Bytes::new(),
            )
            .await;
        match answer {
            Ok(answer) if answer.status.is_success() => {
                self.state
                    .fold
                    .lock()
                    .restart(&decode_list(self.format, &answer.body));
                true
            }
            _ => {
                self.state.counts.lock().failures += 1;
                false
            }
        }
    }

    async fn stream(&self) -> Result<(), String> {
        let cut = self.state.cut.notified();
        let resume = self.state.fold.lock().resource_version().to_owned();
        let from = if resume.is_empty() { "0" } else { &resume };
        let path = self.query(&format!(
            "watch=true&allowWatchBookmarks=true&resourceVersion={from}"
        ));
        let mut stream = self.client.watch(&path, self.format).await?;
        if resume.is_empty() {
            self.state.fold.lock().expect_initial_events();
        }
        self.state.counts.lock().streams += 1;
        tokio::pin!(cut);
        loop {
            tokio::select! {
                () = &mut cut => return Ok(()),
                event = stream.next() => match event? {
                    Some(event) => self.state.fold.lock().apply(event),
                    None => return Ok(()),
                },
            }
        }
    }

    fn query(&self, more: &str) -> String {
        let parts: Vec<&str> = [self.selector.as_str(), more]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        format!("{}?{}", self.path, parts.join("&"))
    }
}
