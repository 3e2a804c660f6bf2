//! Clients that list everything over and over while the watches run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::shutdown::Shutdown;
use crate::upstream::Error;
use crate::upstream::Identity;
use crate::upstream::empty;

use super::clock::nanoseconds;
use super::histogram::Histogram;
use super::histogram::Latency;
use super::shared::Shared;
use super::target::request;

/// After a list that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What the lists were like.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lists {
    /// From request to the answer's last byte.
    pub latency_ms: Latency,
    /// Bytes of all answers.
    pub bytes: u64,
    /// Lists that failed.
    pub failed: u64,
}

#[derive(Default)]
struct Listed {
    latency: Histogram,
    bytes: u64,
    failed: u64,
}

/// Lists at work, on a thread of their own.
pub(super) struct Storm(Option<oneshot::Receiver<Listed>>);

impl Storm {
    pub(super) fn start(shared: &Arc<Shared>, shutdown: &Shutdown) -> io::Result<Self> {
        if shared.config.list_storm == 0 {
            return Ok(Self(None));
        }
        let (told, listed) = oneshot::channel();
        let (shared, shutdown) = (Arc::clone(shared), shutdown.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("load-lists".to_owned())
            .spawn(move || {
                let done = runtime.block_on(rage(shared, &shutdown));
                // Nobody is there when the run was aborted.
                let _ = told.send(done);
            })?;
        Ok(Self(Some(listed)))
    }

    /// What came of it, after [`Shared::stop`].
    pub(super) async fn finish(self) -> Option<Lists> {
        let listed = self.0?.await.ok()?;
        Some(Lists {
            latency_ms: listed.latency.latency(),
            bytes: listed.bytes,
            failed: listed.failed,
        })
    }
}

async fn rage(shared: Arc<Shared>, shutdown: &Shutdown) -> Listed {
    let clients: Vec<_> = (0..shared.config.list_storm)
        .map(|_| shutdown.spawn(list_on(Arc::clone(&shared))))
        .collect();
    let mut all = Listed::default();
    for client in clients {
        match client.await {
            Ok(listed) => {
                all.latency.add(&listed.latency);
                all.bytes += listed.bytes;
                all.failed += listed.failed;
            }
            Err(error) => shared.fail(format!("a list ended early: {error}")),
        }
    }
    all
}

async fn list_on(shared: Arc<Shared>) -> Listed {
    let mut listed = Listed::default();
    let stopped = shared.stopped();
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let started = shared.clock.now();
        let list = tokio::select! {
            biased;
            () = &mut stopped => return listed,
            list = list(&shared) => list,
        };
        match list {
            Ok(bytes) => {
                listed.latency.record(shared.clock.now() - started);
                listed.bytes += bytes;
            }
            Err(error) => {
                listed.failed += 1;
                let pause = error.retry_after().unwrap_or(PAUSE);
                tracing::debug!(%error, wait = nanoseconds(pause), "a list failed");
                tokio::select! {
                    () = &mut stopped => return listed,
                    () = sleep(pause) => {}
                }
            }
        }
    }
}

/// Reads a whole list and keeps nothing of it.
async fn list(shared: &Shared) -> Result<u64, Error> {
    let path = format!("{}?resourceVersion=0", shared.collection);
    let accept = shared.config.format.media_type();
    let request = request(Method::GET, &path, accept, empty());
    let request = request.map_err(|error| Error::Request(error.into()))?;
    let client = &shared.client;
    let mut body = client
        .request_success(Identity::Kubefan, request)
        .await?
        .into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Error::Transport)?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(bytes)
}
