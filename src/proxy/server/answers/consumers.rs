//! Consumers: what gets the record of a request when its answer has ended.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::answer::Waits;
use super::outcome::Outcome;
use super::record::{Arrival, End, Ended, Record};
use super::{access_log, audit, bill, spans};
use crate::bill::{Bill, OpenHandle};
use crate::ledger::WatchMeter;
use crate::line_log::LineLog;
use crate::traces::Traces;

/// The status that nginx logs for a request whose client has left before the answer.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// What gets the record of each request when the body of its answer has ended. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Consumers {
    pub(crate) audit: Option<Arc<LineLog>>,
    pub(crate) access_log: Option<Arc<LineLog>>,
    pub(crate) traces: Option<Traces>,
    pub(crate) bill: Option<Arc<Bill>>,
}

impl Consumers {
    /// Returns true if no record is wanted, so that none needs to be held.
    pub(in crate::server) fn are_none(&self) -> bool {
        self.bill.is_none() && !self.have_logs()
    }

    /// Returns true if `record` is wanted at the head of its answer, or at its end.
    pub(in crate::server) fn want(&self, record: &Record) -> bool {
        self.bill.is_some()
            || self.access_log.is_some()
            || record.arrival.trace.is_some()
            || self.audit.is_some() && audit::is_audited(record)
    }

    /// Returns true if there are logs: they need all of a record until the answer has ended.
    pub(in crate::server) fn have_logs(&self) -> bool {
        self.audit.is_some() || self.access_log.is_some()
    }

    /// Returns true if `record` is needed when its answer has ended. `is_open` is true if
    /// [`Consumers::began`] has returned a value for it.
    pub(super) fn want_at_end(&self, record: &Record, is_open: bool) -> bool {
        // The spans of a long-running request are exported at its head.
        let has_spans = record.arrival.trace.is_some() && !record.arrival.info.is_long_running();
        has_spans
            || self.bill.is_some() && !is_open
            || self.access_log.is_some()
            || self.audit.is_some() && audit::is_audited(record)
    }

    /// Is called when the head of the answer is known. If the answer is a watch, the bill asks
    /// `meter` what it has delivered, until the returned value is dropped.
    pub(super) fn began(
        &self,
        record: &Record,
        meter: Option<&Arc<WatchMeter>>,
    ) -> Option<OpenHandle> {
        if let Some(log) = &self.audit {
            audit::began(log, record);
        }
        if let Some(trace) = &record.arrival.trace {
            spans::began(trace, record);
        }
        let (owner, meter) = (self.bill.as_ref()?, meter?.clone());
        let (entry, cpu) = (bill::entry(record, None), record.arrival.cpu.clone());
        Some(owner.open(&entry, meter, cpu, Instant::now()))
    }

    /// Is called when the answer has ended. `was_open` is true if [`Consumers::began`] has returned
    /// a value for it.
    pub(super) fn ended(&self, record: &Record, ended: &Ended, was_open: bool) {
        if let Some(log) = &self.audit {
            audit::ended(log, record);
        }
        if let Some(log) = &self.access_log {
            log.append(access_log::line(record, ended));
        }
        if let Some(trace) = &record.arrival.trace {
            spans::ended(trace, record, ended);
        }
        if let Some(owner) = self.bill.as_ref().filter(|_| !was_open) {
            let now = record.arrival.began + ended.lasted;
            owner.record(&bill::entry(record, Some(ended)), now);
        }
    }

    /// Is called instead of [`Consumers::began`] and [`Consumers::ended`] if the client left before
    /// there was an answer.
    pub(in crate::server) fn unanswered(&self, arrival: Arrival) {
        let lasted = arrival.began.elapsed();
        let record = Record {
            time_to_head: lasted,
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).expect("from 100 to 999"),
            arrival,
            outcome: Outcome::Unanswered,
            resource: None,
            caller: None,
            waits: Waits::default(),
            read: None,
        };
        let ended = Ended {
            bytes: 0,
            lasted,
            end: End::ClientGone,
        };
        self.ended(&record, &ended, false);
    }

    /// Waits until all lines of the logs are written and the last spans are sent, at most two
    /// seconds for each.
    pub(crate) async fn finish(&self) {
        for log in [&self.audit, &self.access_log].into_iter().flatten() {
            log.finish().await;
        }
        if let Some(traces) = &self.traces {
            traces.finish().await;
        }
    }
}
