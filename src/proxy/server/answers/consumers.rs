//! Consumers: what gets the record of a request when its answer has ended.

use std::sync::Arc;

use super::record::{Ended, Record};
use super::{access_log, audit};
use crate::line_log::LineLog;

/// What gets the record of each request when the body of its answer has ended. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Consumers {
    pub(crate) audit: Option<Arc<LineLog>>,
    pub(crate) access_log: Option<Arc<LineLog>>,
}

impl Consumers {
    /// Returns true if no record is wanted, so that none needs to be held.
    pub(in crate::server) fn are_none(&self) -> bool {
        self.audit.is_none() && self.access_log.is_none()
    }

    /// Returns true if `record` is wanted when its answer has ended.
    pub(in crate::server) fn want(&self, record: &Record) -> bool {
        self.access_log.is_some() || self.audit.is_some() && audit::is_audited(record)
    }

    /// Is called when the head of the answer is known.
    pub(super) fn began(&self, record: &Record) {
        if let Some(log) = &self.audit {
            audit::began(log, record);
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
    }

    /// Waits until all lines of the logs are written, at most two seconds for each.
    pub(crate) async fn finish(&self) {
        for log in [&self.audit, &self.access_log].into_iter().flatten() {
            log.finish().await;
        }
    }
}
