//! The simulated clients of the demo: node agents, controllers and dashboards.
//!
//! Each has one HTTP/2 connection to the server, as a client of client-go has over TLS. Node agents
//! and controllers hold watches open and remember the objects that the watches show. Dashboards
//! list again and again. The demo compares the remembered objects with those of the cluster.

mod connection;
mod counters;
mod dashboard;
mod roster;
mod view;
mod watcher;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use connection::Connection;
pub(crate) use counters::OpenWatch;
pub use counters::{Counters, Totals};
use kubefan_core::api::{GroupVersionResource, WireFormat};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Client, ClientConfig, ConnectError};
use roster::Agent;
pub use roster::Watched;
use tokio::sync::watch;
pub use view::Fingerprint;
use view::View;

/// The pause between the starts of two agents, so that the agents do not all connect at once.
const START_PAUSE: Duration = Duration::from_millis(30);
/// The time limit for the headers of an answer; a debug build on a busy machine is slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two checks whether the server has a resource.
const READY_PAUSE: Duration = Duration::from_millis(300);

/// The running agents. Clones are cheap and share their state.
#[derive(Clone)]
pub struct Agents {
    totals: Arc<Counters>,
    views: Arc<Vec<Arc<View>>>,
}

impl Agents {
    /// Starts `count` agents as background tasks of `shutdown`, one after another. `server` is the
    /// URL of their server. `nodes` are the names of the nodes that have node agents; there must be
    /// at least one.
    ///
    /// # Errors
    ///
    /// If the server's URL is not valid.
    pub async fn start(
        server: String,
        count: usize,
        nodes: &[String],
        shutdown: &Shutdown,
    ) -> Result<Self, ConnectError> {
        let client = Client::connect(ClientConfig {
            server: Some(server),
            answer_timeout: ANSWER_TIMEOUT,
            ..ClientConfig::default()
        })
        .await?;
        let totals = Arc::<Counters>::default();
        let mut views: Vec<Arc<View>> = Vec::new();
        let (ready, is_ready) = watch::channel(false);
        for (number, agent) in roster::roster(count, nodes).into_iter().enumerate() {
            let connection = Arc::new(Connection::new(client.clone(), Arc::clone(&totals)));
            match agent {
                Agent::Watcher(all) => {
                    for watched in all {
                        let view = Arc::new(View::new(watched));
                        views.push(Arc::clone(&view));
                        let connection = Arc::clone(&connection);
                        let turn = turn(number, is_ready.clone());
                        shutdown.spawn_background(async move {
                            turn.await;
                            watcher::watch(&connection, &view).await;
                        });
                    }
                }
                Agent::Dashboard(path) => {
                    let turn = turn(number, is_ready.clone());
                    shutdown.spawn_background(async move {
                        turn.await;
                        dashboard::poll(&connection, path).await;
                    });
                }
            }
        }
        let resources: BTreeSet<_> = views.iter().map(|view| view.watched.gvr.clone()).collect();
        let pilot = Connection::new(client, Arc::clone(&totals));
        shutdown.spawn_background(async move {
            wait_for(resources, &pilot).await;
            ready.send_replace(true);
        });
        Ok(Self {
            totals,
            views: Arc::new(views),
        })
    }

    /// Returns the counts of the agents' requests, watches, events and bytes so far.
    pub fn totals(&self) -> Totals {
        self.totals.totals()
    }

    /// Returns what each watch selects, with the fingerprint of the objects that it shows.
    pub fn views(&self) -> impl Iterator<Item = (&Watched, Fingerprint)> {
        let views = self.views.iter();
        views.map(|view| (&view.watched, view.fingerprint()))
    }
}

/// Waits until the server is ready, and then for the turn of agent `number`.
async fn turn(number: usize, mut is_ready: watch::Receiver<bool>) {
    // An error means that the pilot's task has ended, and then this task ends too.
    let _ = is_ready.wait_for(|is_ready| *is_ready).await;
    tokio::time::sleep(START_PAUSE * u32::try_from(number).unwrap_or(u32::MAX)).await;
}

/// Waits until the server's cache has all `resources`. Until then the server refuses watches, and
/// all clients would only retry at once.
async fn wait_for(resources: BTreeSet<GroupVersionResource>, pilot: &Connection) {
    for gvr in resources {
        let path = format!("{}?watch=true&resourceVersion=0", gvr.path(None));
        while let Err(error) = pilot.get(&path, WireFormat::Json.media_type()).await {
            tracing::debug!(%error, %gvr, "not ready");
            tokio::time::sleep(READY_PAUSE).await;
        }
    }
    // The requests so far count as never refused.
    pilot.totals.refused.store(0, Ordering::Relaxed);
}
