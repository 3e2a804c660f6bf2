//! Limits the read-only requests in flight. Shares their seats between users, and between
//! connections for callers with an undetermined user.
//!
//! GETs and LISTs hold memory until their client has read the answer: a snapshot, a chunk of it, or
//! what the API server has sent so far. So each of them holds a seat, from the moment when its
//! answer is made or forwarded until its body was sent or dropped. A read that only waits for a
//! cache, a proof or the permit of a long read holds no seat. Long-running requests and writes hold
//! none either.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};

use crate::identity::{Caller, UserKey};
use crate::net::ClientConnection;
use crate::server::request::RequestInfo;

/// The verbs of long-running requests, as in kube-apiserver.
const LONG_RUNNING_VERBS: [&str; 2] = ["watch", "proxy"];
/// The subresources of long-running requests, as in kube-apiserver.
const LONG_RUNNING_SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
/// The path of kube-apiserver's profilers. Their requests run as long as they profile.
const PROFILER_PREFIX: &str = "/debug/pprof/";

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
    taken: Mutex<TakenSeats>,
    metrics: InFlightMetrics,
}

/// The seats that are taken. Holders without a seat have no entry.
#[derive(Default)]
struct TakenSeats {
    total: usize,
    by_holder: HashMap<Holder, usize>,
}

/// The seat of one request, which is free again when this value is dropped.
pub(in crate::server) struct Seat {
    in_flight: InFlight,
    holder: Holder,
    /// False while the request waits without its seat.
    is_taken: bool,
}

/// The request needs a seat, and its holder can't have one more now.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct TooManyRequests;

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
    matches!(info.verb.as_str(), "get" | "list" | "watch") && !is_long_running(info)
}

/// Returns true if the request of `info` is long-running by kube-apiserver's
/// `BasicLongRunningRequestCheck`, with the verbs and subresources that kube-apiserver configures.
pub(in crate::server) fn is_long_running(info: &RequestInfo) -> bool {
    let subresource = info.subresource.as_str();
    LONG_RUNNING_VERBS.contains(&info.verb.as_str())
        || info.is_resource_request && LONG_RUNNING_SUBRESOURCES.contains(&subresource)
        || !info.is_resource_request && info.path.starts_with(PROFILER_PREFIX)
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
            taken: Mutex::default(),
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
    /// [`TooManyRequests`], which is also counted, if the holder can't have another seat now.
    pub(in crate::server) fn take(
        &self,
        info: &RequestInfo,
        holder: &Holder,
    ) -> Result<Option<Seat>, TooManyRequests> {
        if !needs_seat(info) {
            return Ok(None);
        }
        let mut seat = Seat {
            in_flight: self.clone(),
            holder: holder.clone(),
            is_taken: false,
        };
        seat.take()?;
        Ok(Some(seat))
    }
}

// === impl TakenSeats ===

impl TakenSeats {
    /// Takes a seat for `holder` if it may have one more. Returns whether it has taken one.
    fn take(&mut self, holder: &Holder, limit: usize) -> bool {
        let held = self.by_holder.get(holder).copied();
        let held = held.unwrap_or_default();
        let may_take = may_take(held, self.total, limit);
        if may_take {
            self.total += 1;
            self.by_holder.insert(holder.clone(), held + 1);
        }
        may_take
    }

    fn release(&mut self, holder: &Holder) {
        let Some(held) = self.by_holder.get_mut(holder) else {
            return;
        };
        self.total -= 1;
        *held -= 1;
        if *held == 0 {
            self.by_holder.remove(holder);
        }
    }
}

// === impl Seat ===

impl Seat {
    /// Gives up the seat during `wait`, and then takes a seat again. Cancel safe: after a
    /// cancellation the request has no seat.
    ///
    /// # Errors
    ///
    /// [`TooManyRequests`], which is also counted, if the holder can't have a seat after `wait`.
    pub(in crate::server) async fn free_during<T>(
        &mut self,
        wait: impl Future<Output = T>,
    ) -> Result<T, TooManyRequests> {
        self.release();
        let output = wait.await;
        self.take()?;
        Ok(output)
    }

    fn take(&mut self) -> Result<(), TooManyRequests> {
        let inner = &self.in_flight.inner;
        let taken = {
            let limit = inner.limit.load(Ordering::Relaxed);
            inner.taken.lock().take(&self.holder, limit)
        };
        if !taken {
            inner.metrics.rejected.inc();
            return Err(TooManyRequests);
        }
        inner.metrics.seats.inc();
        self.is_taken = true;
        Ok(())
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_taken) {
            let inner = &self.in_flight.inner;
            inner.taken.lock().release(&self.holder);
            inner.metrics.seats.dec();
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
