//! Forwards requests to the API server.

mod shared_reads;

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use http::Request;
use http::Response;
use tokio::sync::Semaphore;

use crate::api::Status;
use crate::body::Body;
use crate::body::BodyGuard;
use crate::body::guarded;
use crate::shutdown::Shutdown;
use crate::shutdown::WatchEnd;
use crate::upstream::Forwarder;
use crate::upstream::Identity;
use crate::upstream::PendingUpgrade;

use super::request::RequestInfo;
use super::request::has_identity;
use super::rescue;

use shared_reads::ReadKey;
use shared_reads::SharedReadError;
use shared_reads::SharedReads;

/// Forwards requests. Identical reads that wait at the same time share a call.
pub(super) struct Forwarding {
    forwarder: Forwarder,
    shared_reads: SharedReads,
    shutdown: Shutdown,
}

impl Forwarding {
    /// Forwards through `forwarder`. Forwarded watches end when `shutdown` ends watches.
    pub(super) fn new(forwarder: Forwarder, shutdown: Shutdown) -> Self {
        Self {
            shared_reads: SharedReads::new(forwarder.clone()),
            forwarder,
            shutdown,
        }
    }

    /// The API server's answer to `request`, which is sent with the caller's identity if it carries
    /// one, and otherwise with kubefan's. If `limit` is set, it is sent only with a permit.
    ///
    /// # Errors
    ///
    /// The Status for the client, if the API server gave no answer or no permit was free.
    pub(super) async fn forward(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        limit: Option<Arc<Semaphore>>,
    ) -> Result<Response<Body>, Status> {
        let has_identity = has_identity(request.headers());
        if !has_identity && let Some(key) = ReadKey::of(&request, info) {
            let answer = self.shared_reads.forward(key, request, limit).await;
            return answer.map_err(|failed| match failed {
                SharedReadError::TooMany => Status::too_many_consistent_reads(),
                SharedReadError::Upstream(error) => rescue::forwarding_failed(&error),
            });
        }
        let permit = limit.map(Semaphore::try_acquire_owned).transpose();
        let permit = permit.map_err(|_| Status::too_many_consistent_reads())?;
        let identity = if has_identity {
            Identity::Caller
        } else {
            Identity::Kubefan
        };
        let forwarded = self.forwarder.forward(request, identity).await;
        let forwarded = forwarded.map_err(|error| rescue::forwarding_failed(&error))?;
        let is_watch = info.verb == "watch";
        if let Some(upgrade) = forwarded.upgrade {
            self.join_upgrade(upgrade, is_watch);
        }
        let response = guarded(forwarded.response, permit);
        let end = is_watch.then(|| self.shutdown.watch_end());
        Ok(guarded(response, end))
    }

    /// Copies bytes between both sides of an upgraded connection, in a task. A drain ends a watch
    /// at its scheduled moment; exec and similar upgrades may use the whole grace period.
    fn join_upgrade(&self, upgrade: PendingUpgrade, is_watch: bool) {
        let end = is_watch.then(|| self.shutdown.watch_end());
        self.shutdown.spawn(async move {
            let ended = async {
                match end {
                    Some(end) => end.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                joined = upgrade.join() => {
                    if let Err(error) = joined {
                        tracing::debug!(%error, "upgraded connection broke");
                    }
                }
                () = ended => {}
            }
        });
    }
}

/// Ends a forwarded watch cleanly during a drain, like a watch from a cache.
impl BodyGuard for WatchEnd {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(self).poll(cx)
    }
}
