//! Machine: the next step of a candidate. It is a pure state machine: the caller makes the calls,
//! and passes the times.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Config, LeaseRecord, Stored};

/// A candidate: what it has seen of the Lease, and until when it leads.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) config: Config,
    observed: Option<Observed>,
    /// The version that the next update replaces; `None` if the Lease has to be read first.
    version: Option<String>,
    /// True if the record was read in this attempt.
    has_read: bool,
    /// The time until which this candidate leads if it does not renew the Lease; `None` if it does
    /// not lead.
    pub(super) leading_until: Option<Instant>,
    is_releasing: bool,
    /// True if this candidate may hold the Lease: it has sent a write, and has read no
    /// other record since.
    pub(super) may_hold: bool,
}

/// A record, and when this process first saw it.
#[derive(Clone, Debug)]
struct Observed {
    record: LeaseRecord,
    at: Instant,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Get,
    Create(LeaseRecord),
    Update(LeaseRecord, String),
}

/// How the store answered a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The answer to [`Call::Get`].
    Found(Option<Stored>),
    /// The answer to the other calls, if they succeeded.
    Written(Stored),
    Conflict,
    /// There was no answer, or one that does not say what happened.
    Failed,
}

/// What follows an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another call in this attempt.
    Call(Call),
    /// The attempt has ended.
    Wait,
    /// This candidate led, and no longer leads.
    Lost,
    /// This candidate does not hold the Lease, after [`Machine::release`].
    Released,
}

/// The time of one step, by the monotonic clock, and by the wall clock for records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) wall: Timestamp,
}

impl Machine {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            observed: None,
            version: None,
            has_read: false,
            leading_until: None,
            is_releasing: false,
            may_hold: false,
        }
    }

    /// Returns the holder of the Lease that was seen last; `None` if there is none.
    pub(super) fn holder(&self) -> Option<&str> {
        let record = self.observed.as_ref().map(|observed| &observed.record);
        let holder = record.map(|record| record.holder.as_str());
        holder.filter(|holder| !holder.is_empty())
    }

    /// Stops to lead. The next attempts give the Lease back.
    pub(super) fn release(&mut self) {
        self.leading_until = None;
        self.is_releasing = true;
    }

    /// Returns the first call of an attempt.
    pub(super) fn begin(&mut self, now: Now) -> Call {
        self.has_read = false;
        let is_own = self.holder() == Some(self.config.identity.as_str());
        // After a call without an answer, the version of the Lease is uncertain, so it is read
        // again.
        match self.version.take() {
            Some(version) if is_own => self.write(Call::Update(self.record(now), version)),
            _ => Call::Get,
        }
    }

    /// Returns the next step after `answer`, which came at `now`, to a call that was made at
    /// `sent`.
    pub(super) fn proceed(&mut self, answer: Answer, sent: Instant, now: Now) -> Next {
        if self.leading_until.is_some_and(|until| until <= now.instant) {
            return Next::Lost;
        }
        match answer {
            Answer::Failed => Next::Wait,
            Answer::Conflict if self.has_read => Next::Wait,
            Answer::Conflict => Next::Call(Call::Get),
            Answer::Found(found) => self.found(found, now),
            Answer::Written(_) if self.is_releasing => Next::Released,
            Answer::Written(stored) => {
                self.version = Some(stored.version);
                self.observed = Some(Observed {
                    record: stored.record,
                    at: now.instant,
                });
                // Others may have seen the renewal right after it was sent.
                let until = sent + self.config.renew_deadline;
                if now.instant < until {
                    self.leading_until = Some(until);
                }
                Next::Wait
            }
        }
    }

    fn found(&mut self, found: Option<Stored>, now: Now) -> Next {
        self.has_read = true;
        let Some(Stored { record, version }) = found else {
            self.may_hold = false;
            return match self.observed {
                _ if self.is_releasing => Next::Released,
                // A deleted Lease may still have a leader that has not noticed the deletion yet.
                Some(_) if self.is_held_by_another(now.instant) => Next::Wait,
                _ => Next::Call(self.write(Call::Create(self.record(now)))),
            };
        };
        let is_known = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.record == record);
        if !is_known {
            let at = now.instant;
            self.observed = Some(Observed { record, at });
        }
        let is_own = self.holder() == Some(self.config.identity.as_str());
        self.may_hold = is_own;
        if !is_own && self.is_releasing {
            Next::Released
        } else if !is_own && self.leading_until.is_some() {
            Next::Lost
        } else if !is_own && self.is_held_by_another(now.instant) {
            Next::Wait
        } else {
            Next::Call(self.write(Call::Update(self.record(now), version)))
        }
    }

    fn write(&mut self, call: Call) -> Call {
        self.may_hold = true;
        call
    }

    /// Returns true if another candidate holds the Lease that was seen last, and it has not
    /// expired.
    fn is_held_by_another(&self, now: Instant) -> bool {
        let Some(Observed { record, at }) = &self.observed else {
            return false;
        };
        let duration = record.lease_duration.unwrap_or(self.config.lease_duration);
        let is_anothers = !record.holder.is_empty() && record.holder != self.config.identity;
        is_anothers && now.saturating_duration_since(*at) < duration
    }

    /// Returns the record that this candidate writes next.
    fn record(&self, now: Now) -> LeaseRecord {
        let last = self.observed.as_ref().map(|observed| &observed.record);
        let transitions = last.map_or(0, |record| record.transitions);
        if self.is_releasing {
            return LeaseRecord {
                holder: String::new(),
                // The shortest possible duration, for candidates that read only this field.
                lease_duration: Some(Duration::from_secs(1)),
                acquired_at: Some(now.wall),
                renewed_at: Some(now.wall),
                transitions,
            };
        }
        let own = last.filter(|record| record.holder == self.config.identity);
        LeaseRecord {
            holder: self.config.identity.clone(),
            lease_duration: Some(self.config.lease_duration),
            acquired_at: match own {
                Some(own) => own.acquired_at,
                None => Some(now.wall),
            },
            renewed_at: Some(now.wall),
            transitions: match (last, own) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            },
        }
    }
}
