//! Everything that the API server answers itself.

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

/// Sends requests on, those that are the same together.
pub(super) struct Forwarding {
    forwarder: Forwarder,
    shared_reads: SharedReads,
    shutdown: Shutdown,
}

impl Forwarding {
    /// Through `forwarder`; watches and upgrades end with `shutdown`.
    pub(super) fn new(forwarder: Forwarder, shutdown: Shutdown) -> Self {
        Self {
            shared_reads: SharedReads::new(forwarder.clone()),
            forwarder,
            shutdown,
        }
    }

    /// What the API server answers to `request`, asked as the caller if that brings an identity of
    /// its own, else as kubefan; with `limit`, only if that has a permit.
    ///
    /// # Errors
    ///
    /// The Status to answer with where the API server gave no answer.
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

    /// Joins both sides of an upgraded connection. A drain ends a watch when its time has come; exec
    /// and the like have the whole grace.
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

/// A drain ends a forwarded watch cleanly, as it does those from the cache.
impl BodyGuard for WatchEnd {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(self).poll(cx)
    }
}
