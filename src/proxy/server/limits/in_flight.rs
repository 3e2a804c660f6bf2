//! Limits the read-only requests in flight. Shares their seats between users, and between
//! connections for callers with an undetermined user.
//!
//! GETs and LISTs hold memory until their client has read the answer: a snapshot, a chunk of it, or
//! what the API server has sent so far. So each of them holds a seat, from the moment when its
//! answer is made or forwarded until its body was sent or dropped. A read that only waits for a
//! cache, a proof or the permit of a long read holds no seat. Long-running requests and writes hold
//! none either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubefan_core::telemetry::Registry;
use prometheus::{IntCounter, IntGauge};

use super::counts::{Counted, Counts};
use crate::identity::{Caller, UserKey};
use crate::limit::Limit;
use crate::net::ClientConnection;
use crate::server::request::RequestInfo;

/// Metrics of the read-only requests in flight.
#[derive(Clone)]
pub(in crate::server) struct InFlightMetrics {
    seats: IntGauge,
    rejected: IntCounter,
}

/// What seats are shared between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) enum Holder {
    /// All requests of a user, on any connection. A connection of an authenticating proxy has
    /// requests of many users.
    User(UserKey),
    /// The requests on a connection from callers with an undetermined user.
    Connection(ClientConnection),
}

/// The seats of all holders. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct InFlight {
    inner: Arc<Inner>,
}

struct Inner {
    /// Number of seats; 0 for no limit.
    limit: AtomicUsize,
    taken: Counts<Holder>,
    metrics: InFlightMetrics,
}

/// The seat of one request, which is free again when this value is dropped.
pub(in crate::server) struct Seat {
    in_flight: InFlight,
    holder: Holder,
    /// `None` while the request waits without its seat.
    taken: Option<Counted<Holder>>,
}

/// Returns true if a holder of `held` seats may take one more while `total` of `limit` seats are
/// taken. There is no limit if `limit` is 0.
///
/// A holder may have as many seats as are free. So one busy holder gets half of the seats, and each
/// of `n` busy holders gets 1/(n+1) of them. The rest is free for holders that become busy. A
/// holder without a seat always gets one, so the total exceeds the limit by at most the number of
/// holders.
fn may_take(held: usize, total: usize, limit: usize) -> bool {
    limit == 0 || held == 0 || held < limit.saturating_sub(total)
}

/// Returns true if the request of `info` reads and is not long-running, as kube-apiserver defines
/// both.
fn needs_seat(info: &RequestInfo) -> bool {
    info.verb.is_read() && !info.is_long_running()
}

// === impl Holder ===

impl Holder {
    /// Returns the holder of the seats for the requests of `caller` on `connection`.
    pub(in crate::server) fn of(caller: &Caller, connection: &ClientConnection) -> Self {
        match caller.name_key() {
            Some(user) => Self::User(user),
            None => Self::Connection(connection.clone()),
        }
    }
}

// === impl InFlight ===

impl InFlight {
    /// Creates the seats for `limit` requests. There is no limit if `limit` is 0.
    pub(in crate::server) fn new(limit: usize, metrics: InFlightMetrics) -> Self {
        let inner = Inner {
            limit: AtomicUsize::new(limit),
            taken: Counts::default(),
            metrics,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Changes the number of seats; 0 for no limit. Seats that are taken stay taken.
    pub(in crate::server) fn set_limit(&self, limit: usize) {
        self.inner.limit.store(limit, Ordering::Relaxed);
    }

    /// Takes a seat of `holder` for the request of `info`. Returns `None` if the request needs no
    /// seat.
    ///
    /// # Errors
    ///
    /// [`Limit::RequestsInFlight`], which is also counted, if the holder can't have another seat
    /// now.
    pub(in crate::server) fn take(
        &self,
        info: &RequestInfo,
        holder: &Holder,
    ) -> Result<Option<Seat>, Limit> {
        if !needs_seat(info) {
            return Ok(None);
        }
        let mut seat = Seat {
            in_flight: self.clone(),
            holder: holder.clone(),
            taken: None,
        };
        seat.take()?;
        Ok(Some(seat))
    }

    /// Returns true if the request of `info` would get a seat of `holder` now, or needs none.
    pub(in crate::server) fn has_room(&self, info: &RequestInfo, holder: &Holder) -> bool {
        let (held, total) = self.inner.taken.of(holder);
        let limit = self.inner.limit.load(Ordering::Relaxed);
        !needs_seat(info) || may_take(held, total, limit)
    }
}

// === impl Seat ===

impl Seat {
    /// Gives up the seat during `wait`, and then takes a seat again. Cancel safe: after a
    /// cancellation the request has no seat.
    ///
    /// # Errors
    ///
    /// [`Limit::RequestsInFlight`], which is also counted, if the holder can't have a seat after
    /// `wait`.
    pub(in crate::server) async fn free_during<T>(
        &mut self,
        wait: impl Future<Output = T>,
    ) -> Result<T, Limit> {
        self.release();
        let output = wait.await;
        self.take()?;
        Ok(output)
    }

    fn take(&mut self) -> Result<(), Limit> {
        let inner = &self.in_flight.inner;
        let limit = inner.limit.load(Ordering::Relaxed);
        let may_take = |held, total| may_take(held, total, limit);
        self.taken = inner.taken.add(self.holder.clone(), may_take);
        if self.taken.is_none() {
            inner.metrics.rejected.inc();
            return Err(Limit::RequestsInFlight);
        }
        inner.metrics.seats.inc();
        Ok(())
    }

    fn release(&mut self) {
        if self.taken.take().is_some() {
            self.in_flight.inner.metrics.seats.dec();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.release();
    }
}

// === impl InFlightMetrics ===

impl InFlightMetrics {
    pub(in crate::server) fn new(registry: &Registry) -> Self {
        Self {
            seats: registry.gauge(
                "kubefan_inflight_requests",
                "GETs and LISTs that hold a seat of --max-requests-inflight now.",
            ),
            rejected: registry.counter(
                "kubefan_inflight_rejected_total",
                "GETs and LISTs that got 429 because of --max-requests-inflight.",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
