//! New credentials after the API server has refused those of kubefan.

use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Client;
use crate::upstream::connect::transport::{OwnConnections, Stacks};

/// The shortest time between reloads because the API server answered 401 to kubefan's credentials.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

// === impl Client ===

impl Client {
    /// Reloads the credentials after the API server refused those of `used`. Returns true if other
    /// ones are in use now; they may be equal. Reloads at most every 10 s. A reload that has begun
    /// continues if the future is dropped, because other requests wait for it, and because an exec
    /// plugin may take longer than each of them.
    pub(super) async fn renew(&self, used: &Arc<Stacks>, own: &OwnConnections) -> bool {
        let mut renewed_at = Arc::clone(&self.inner.renewed_at).lock_owned().await;
        if !Arc::ptr_eq(used, &self.inner.stacks.load()) {
            return true;
        }
        if renewed_at.is_some_and(|at| at.elapsed() < RENEWAL_PAUSE) {
            return false;
        }
        let last = renewed_at.replace(Instant::now());
        // Refusals that last are not logged again and again.
        let is_new = last.is_none_or(|at| at.elapsed() > 6 * RENEWAL_PAUSE);
        let (client, (done, reloaded)) = (self.clone(), oneshot::channel());
        own.opener.executor().execute(async move {
            let is_reloaded = client.reload_refused(is_new).await;
            drop(renewed_at);
            // Sending fails if the request was cancelled.
            done.send(is_reloaded).ok();
        });
        reloaded.await.unwrap_or(false)
    }

    /// Reloads credentials that the API server refused; returns whether that succeeded. Logs the
    /// refusal only if it `is_new`.
    async fn reload_refused(&self, is_new: bool) -> bool {
        let reloaded = self.reload().await;
        match &reloaded {
            _ if !is_new => {}
            Ok(()) => {
                tracing::warn!("the API server refused kubefan's credentials (401), reloaded them");
            }
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "the API server refused kubefan's credentials (401), and they cannot be reloaded"
                );
            }
        }
        reloaded.is_ok()
    }
}
