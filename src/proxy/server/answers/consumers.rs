//! Consumers: what gets the record of a request when its answer has ended.

use std::sync::Arc;

use super::record::{Ended, Record};
use super::{access_log, audit, spans};
use crate::line_log::LineLog;
use crate::traces::Traces;

/// What gets the record of each request when the body of its answer has ended. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Consumers {
    pub(crate) audit: Option<Arc<LineLog>>,
    pub(crate) access_log: Option<Arc<LineLog>>,
    pub(crate) traces: Option<Traces>,
}

impl Consumers {
    /// Returns true if there is a log, so that records need to be held.
    pub(in crate::server) fn have_logs(&self) -> bool {
        self.audit.is_some() || self.access_log.is_some()
    }

    /// Returns true if `record` is wanted when its answer has ended.
    pub(in crate::server) fn want(&self, record: &Record) -> bool {
        self.access_log.is_some()
            || record.arrival.trace.is_some()
            || self.audit.is_some() && audit::is_audited(record)
    }

    /// Is called when the head of the answer is known.
    pub(super) fn began(&self, record: &Record) {
        if let Some(log) = &self.audit {
            audit::began(log, record);
        }
        if let Some(trace) = &record.arrival.trace {
            spans::began(trace, record);
        }
    }

    /// Is called when the answer has ended.
    pub(super) fn ended(&self, record: &Record, ended: &Ended) {
        if let Some(log) = &self.audit {
            audit::ended(log, record);
        }
        if let Some(log) = &self.access_log {
            log.append(access_log::line(record, ended));
        }
        if let Some(trace) = &record.arrival.trace {
            spans::ended(trace, record, ended);
        }
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
