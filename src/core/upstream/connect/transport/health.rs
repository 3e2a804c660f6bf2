//! Whether the API server responds, as its answers to HTTP/2 pings and its handshakes show.
//!
//! If a server is stopped, or its network is broken, it closes no connection, and requests would
//! wait until their time limits. Instead, requests fail at once until a probe has succeeded.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::dedicated::ConnectionOpener;
use crate::body::BoxError;
use crate::upstream::connect::config::ClientConfig;
use crate::upstream::connect::error::causes;

/// Time limit for a probe to open a connection, including handshakes.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait after a failed probe.
pub(super) const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// When the connections to an API server are pinged.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Pings {
    /// As [`ClientConfig::ping_interval`].
    pub(in crate::upstream) interval: Duration,
    /// As [`ClientConfig::ping_timeout`].
    pub(in crate::upstream) timeout: Duration,
}

/// Whether one API server responds. It is shared by the connections of all identities.
pub(in crate::upstream) struct Health {
    pub(super) pings: Pings,
    state: watch::Sender<State>,
    /// Opens the connections of probes.
    prober: Mutex<ConnectionOpener>,
    /// Notified when a connection is open. One task at a time may wait.
    pub(in crate::upstream) opened: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Responding,
    /// A connection fell silent, and the first probe has not ended. If several API servers share an
    /// address, another one may still respond.
    Suspect,
    /// A probe failed, and none has succeeded since.
    Dead,
}

/// The error of a request that was not sent, or that stopped waiting, because the
/// API server is silent.
#[derive(Debug, thiserror::Error)]
#[error("it does not respond to pings and handshakes")]
pub(super) struct NotResponding;

impl Pings {
    pub(in crate::upstream) fn of(config: &ClientConfig) -> Self {
        Self {
            interval: config.ping_interval,
            timeout: config.ping_timeout,
        }
    }

    /// Returns the longest time that a connection can be silent if its server answers pings.
    pub(in crate::upstream::connect) fn longest_silence(self) -> Duration {
        self.interval.max(self.timeout)
    }
}

impl Health {
    /// Creates the health of a server that responds. Its connections are pinged at the times in
    /// `pings`; `prober` opens the connections of probes.
    pub(in crate::upstream) fn new(prober: ConnectionOpener, pings: Pings) -> Self {
        Self {
            pings,
            state: watch::Sender::new(State::Responding),
            prober: Mutex::new(prober),
            opened: Notify::new(),
        }
    }

    /// Uses `prober` for later probes. When the server responds again, it may have new
    /// certificates, which the opener of an earlier kubeconfig would reject for ever.
    pub(in crate::upstream) fn probe_with(&self, prober: ConnectionOpener) {
        let replaced = std::mem::replace(&mut *self.prober.lock(), prober);
        // Dropped outside of the lock, because an opener may hold functions of a program.
        drop(replaced);
    }

    /// Fails if a connection fell silent and no probe has succeeded since.
    pub(super) fn check(&self) -> Result<(), NotResponding> {
        match *self.state.borrow() {
            State::Responding => Ok(()),
            State::Suspect | State::Dead => Err(NotResponding),
        }
    }

    /// Returns true unless a connection fell silent and no probe has succeeded since.
    pub(in crate::upstream) fn is_responding(&self) -> bool {
        self.check().is_ok()
    }

    /// Completes with the error for waiting requests when a probe has failed, which shows that the
    /// silence is not limited to one connection. Cancel safe.
    pub(super) async fn dead(&self) -> NotResponding {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| *state == State::Dead).await {
            Ok(_) => NotResponding,
            Err(_) => unreachable!("self owns the sender"),
        }
    }

    /// Records that a connection fell silent, and probes the server by new connections until one is
    /// open.
    pub(super) fn suspect(self: &Arc<Self>) {
        let begin = |state: &mut State| {
            let begins = *state == State::Responding;
            if begins {
                *state = State::Suspect;
            }
            begins
        };
        if self.state.send_if_modified(begin) {
            let prober = self.prober.lock().clone();
            let server = &prober.server;
            tracing::warn!(%server, "the API server does not respond, refusing requests that need it");
            prober.executor().execute(probe(Arc::downgrade(self)));
        }
    }
}

/// Probes the server until a connection is open or the client is dropped.
async fn probe(health: Weak<Health>) {
    let responding = loop {
        let Some(prober) = health.upgrade().map(|health| health.prober.lock().clone()) else {
            return;
        };
        let opened = timeout(PROBE_TIMEOUT, prober.probe()).await;
        let Some(health) = health.upgrade() else {
            return;
        };
        match opened {
            Ok(Ok(())) => break health,
            Ok(Err(error)) => tracing::debug!(%error, "probe of the API server failed"),
            Err(_) => tracing::debug!("probe of the API server got no answer"),
        }
        health.state.send_replace(State::Dead);
        drop(health);
        sleep(PROBE_PAUSE).await;
    };
    responding.state.send_replace(State::Responding);
    let server = responding.prober.lock().server.clone();
    tracing::info!(%server, "the API server responds again");
}

/// Returns true if `error` or one of its causes is an I/O timeout, such as that of a handshake.
pub(super) fn is_timeout(error: &BoxError) -> bool {
    causes(&**error).any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    })
}

#[cfg(test)]
mod tests;
