//! Consumers: what gets the record of a request when its answer has ended.

use std::sync::Arc;

use super::audit;
use super::record::{Ended, Record};
use crate::audit::AuditLog;

/// What gets the record of each request when the body of its answer has ended. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Consumers {
    pub(crate) audit: Option<Arc<AuditLog>>,
}

impl Consumers {
    /// Returns true if no record is wanted, so that none needs to be held.
    pub(in crate::server) fn are_none(&self) -> bool {
        self.audit.is_none()
    }

    /// Returns true if `record` is wanted when its answer has ended.
    pub(in crate::server) fn want(&self, record: &Record) -> bool {
        self.audit.is_some() && audit::is_audited(record)
    }

    /// Is called when the head of the answer is known.
    pub(super) fn began(&self, record: &Record) {
        if let Some(log) = &self.audit {
            audit::began(log, record);
        }
    }

    /// Is called when the answer has ended.
    pub(super) fn ended(&self, record: &Record, _ended: &Ended) {
        if let Some(log) = &self.audit {
            audit::ended(log, record);
        }
    }
}
