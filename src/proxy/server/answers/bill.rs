//! What the bill counts for a request: its entry, made from the record, and the meters of open
//! watches.

use std::time::Duration;

use kubefan_core::api::Query;
use tokio::time::Instant;

use super::answer::Waits;
use super::cached_read::CachedRead;
use super::line_text::header_text;
use super::outcome::Outcome;
use super::record::{Arrival, End, Ended, Record};
use crate::bill;
use crate::bill::{
    Behind, Conditions, Entry, Identity, OpenAnswer, Operation, Progress, SelectorClass,
};
use crate::ledger::WatchMeter;
use crate::server::decide::Reason;
use crate::server::request::{RequestInfo, Verb};

/// Returns the entry of a request. `ended` is `None` for an answer that the bill opens. The CPU time
/// of the connection is taken from its account.
pub(super) fn entry<'a>(record: &'a Record, ended: Option<&Ended>) -> Entry<'a> {
    let arrival = &record.arrival;
    // The answer of a cache may have been refused afterwards, for lack of memory.
    let is_hit = matches!(record.outcome, Outcome::Cache(_));
    let read = record.read.filter(|_| is_hit);
    let read = read.unwrap_or_else(|| uncached(arrival));
    let (group, resource) = match &record.resource {
        Some(gvr) => (gvr.group.as_str(), gvr.resource.as_str()),
        None => ("", ""),
    };
    let cpu = arrival.cpu.as_ref();
    Entry {
        identity: match record.user() {
            Some(user) => Identity::User(&user.name),
            None => Identity::Address(arrival.peer),
        },
        user_agent: header_text(arrival.user_agent.as_ref()),
        operation: Operation {
            verb: arrival.info.verb.label(),
            group,
            resource,
            selector: selector(&arrival.info, read.is_unindexed),
        },
        outcome: outcome(record.outcome),
        status: record.status.as_u16(),
        is_unversioned: read.is_unversioned,
        starts_list: read.starts_list,
        objects: read.objects,
        bytes: ended.map_or(0, |ended| ended.bytes),
        waited: waited(record.waits),
        was_stalled: ended.is_some_and(|ended| ended.end == End::TooSlow),
        cpu: cpu.map_or(Duration::ZERO, |cpu| cpu.take()),
        saved: read.saved,
    }
}

/// Returns what is known of a read that no cache has answered.
fn uncached(arrival: &Arrival) -> CachedRead {
    let info = &arrival.info;
    let is_list = info.verb == Verb::List;
    let is_watch = info.verb == Verb::Watch;
    if !is_list && !is_watch && !info.is_get_of_object() {
        return CachedRead::default();
    }
    let query = Query::parse(arrival.uri.query().unwrap_or_default());
    if is_watch {
        return CachedRead {
            starts_list: query.flag("sendInitialEvents") == Some(true),
            ..CachedRead::default()
        };
    }
    let is_empty = |name| query.first(name).is_none_or(str::is_empty);
    let is_next_page = is_list && !is_empty("continue");
    CachedRead {
        is_unversioned: !is_next_page && is_empty("resourceVersion"),
        starts_list: is_list && !is_next_page,
        ..CachedRead::default()
    }
}

/// Returns how the request selects objects.
fn selector(info: &RequestInfo, is_unindexed: bool) -> SelectorClass {
    let is_given = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    SelectorClass::of(Conditions {
        is_of_shard: info.shard_selector.is_some(),
        is_unindexed,
        has_name: !info.name.is_empty(),
        has_fields: is_given(info.field_selector.as_deref()),
        has_labels: is_given(info.label_selector.as_deref()),
        has_namespace: !info.namespace.is_empty(),
    })
}

fn outcome(outcome: Outcome) -> bill::Outcome {
    match outcome {
        Outcome::Cache(_) => bill::Outcome::Hit,
        Outcome::Forwarded(forwarded) => bill::Outcome::Forwarded {
            reason: forwarded.reason.name(),
            is_for_format: is_for_format(forwarded.reason),
        },
        Outcome::KeptRefusal | Outcome::Rejected(_) => bill::Outcome::Refused,
        Outcome::Unanswered => bill::Outcome::Unanswered,
    }
}

/// Returns true if a read is forwarded because no cache has a media type that its client accepts.
/// Tables don't count: their clients accept JSON, too.
fn is_for_format(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::MediaType | Reason::NoSuchFormat | Reason::PartialMetadata
    )
}

fn waited(waits: Waits) -> Duration {
    waits.authorize + waits.acquire + waits.prove
}

impl OpenAnswer for WatchMeter {
    fn progress(&self) -> Progress {
        Progress {
            events: self.events(),
            bytes: self.bytes(),
            is_expired: self.is_expired(),
            // A watch that is read too slowly expires.
            was_stalled: false,
        }
    }

    fn behind(&self, now: Instant) -> Option<Behind> {
        let progress = self.watch_progress()?;
        let behind = progress.behind().filter(|behind| behind.events > 0)?;
        let waited = now.saturating_duration_since(behind.since?);
        Some(Behind {
            events: behind.events,
            waited,
            remaining: progress.retention_age().checked_sub(waited),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::StatusCode;

    use super::*;
    use crate::bill::CpuAccount;
    use crate::bill::estimate::Cost;
    use crate::limit::Limit;
    use crate::server::answers::outcome::Hit;

    fn ended(bytes: u64, end: End) -> Ended {
        Ended {
            bytes,
            lasted: Duration::ZERO,
            end,
        }
    }

    #[test]
    fn each_outcome_has_its_entry() {
        let hit = Outcome::Cache(Hit::default());
        let forwarded = |reason, is_for_format| {
            let expected = bill::Outcome::Forwarded {
                reason: Reason::name(reason),
                is_for_format,
            };
            (Outcome::forwarded(reason), expected)
        };
        for ((outcome, expected), status) in [
            ((hit, bill::Outcome::Hit), 200),
            ((hit, bill::Outcome::Hit), 404),
            (forwarded(Reason::Consistent, false), 200),
            (forwarded(Reason::NotAuthorized, false), 403),
            (forwarded(Reason::Table, false), 200),
            (forwarded(Reason::MediaType, true), 200),
            (forwarded(Reason::NoSuchFormat, true), 200),
            (forwarded(Reason::PartialMetadata, true), 200),
            ((Outcome::KeptRefusal, bill::Outcome::Refused), 403),
            ((Outcome::Rejected(None), bill::Outcome::Refused), 401),
            ((Outcome::Unanswered, bill::Outcome::Unanswered), 499),
            (
                (
                    Outcome::Rejected(Some(Limit::Streams)),
                    bill::Outcome::Refused,
                ),
                429,
            ),
        ] {
            let mut record = Record::for_tests("/api/v1/pods", outcome);
            record.status = StatusCode::from_u16(status).expect("a status");
            let entry = entry(&record, Some(&ended(7, End::Complete)));
            assert_eq!(entry.outcome, expected, "{outcome:?}");
            assert_eq!(entry.status, status);
            assert_eq!(entry.identity, Identity::Address(record.arrival.peer));
            assert_eq!(entry.user_agent, "agent");
            assert_eq!((entry.bytes, entry.was_stalled), (7, false));
            let operation = entry.operation;
            assert_eq!((operation.verb, operation.resource), ("list", "pods"));
        }
    }

    #[test]
    fn without_a_cache_the_query_shows_which_state_is_read() {
        let forwarded = Outcome::forwarded(Reason::Consistent);
        for (target, is_unversioned, starts_list) in [
            ("/api/v1/pods", true, true),
            ("/api/v1/pods?resourceVersion=", true, true),
            ("/api/v1/pods?resourceVersion=0", false, true),
            ("/api/v1/pods?limit=1&continue=x", false, false),
            ("/api/v1/pods?watch=1", false, false),
            ("/api/v1/pods?watch=1&sendInitialEvents=false", false, false),
            ("/api/v1/pods?watch=1&sendInitialEvents=true", false, true),
            ("/api/v1/namespaces/a/pods/b", true, false),
            (
                "/api/v1/namespaces/a/pods/b?resourceVersion=0",
                false,
                false,
            ),
            ("/api/v1/namespaces/a/pods/b/log", false, false),
            ("/version", false, false),
        ] {
            let record = Record::for_tests(target, forwarded);
            let entry = entry(&record, None);
            let found = (entry.is_unversioned, entry.starts_list);
            assert_eq!(found, (is_unversioned, starts_list), "{target}");
        }
    }

    #[test]
    fn the_request_shows_how_objects_are_selected() {
        let hit = Outcome::Cache(Hit::default());
        for (target, expected) in [
            ("/api/v1/pods", SelectorClass::None),
            (
                "/api/v1/pods?labelSelector=&fieldSelector=",
                SelectorClass::None,
            ),
            ("/api/v1/namespaces/a/pods", SelectorClass::Namespace),
            ("/api/v1/namespaces/a/pods/b", SelectorClass::Name),
            (
                "/api/v1/pods?fieldSelector=metadata.name%3Db",
                SelectorClass::Name,
            ),
            ("/api/v1/pods?labelSelector=a%3Db", SelectorClass::Label),
            (
                "/api/v1/pods?fieldSelector=spec.nodeName%3Db&labelSelector=a",
                SelectorClass::Field,
            ),
            ("/api/v1/pods?shardSelector=x", SelectorClass::Shard),
        ] {
            let mut record = Record::for_tests(target, hit);
            assert_eq!(
                entry(&record, None).operation.selector,
                expected,
                "{target}"
            );
            record.read = Some(CachedRead {
                is_unindexed: true,
                ..CachedRead::default()
            });
            let expected = match expected {
                SelectorClass::Shard => SelectorClass::Shard,
                _ => SelectorClass::Unindexed,
            };
            assert_eq!(
                entry(&record, None).operation.selector,
                expected,
                "{target}"
            );
        }
    }

    #[test]
    fn what_the_stages_have_found_is_in_the_entry() {
        let [authorize, acquire, prove] = [1, 2, 4].map(Duration::from_millis);
        let account = Arc::new(CpuAccount::default());
        account.add(Duration::from_micros(3));
        let saved = Cost {
            requests: 1,
            ..Cost::default()
        };
        let mut record = Record::for_tests("/api/v1/pods", Outcome::Cache(Hit::default()));
        record.arrival.cpu = Some(Arc::clone(&account));
        record.resource = None;
        record.waits = Waits {
            began: None,
            authorize,
            acquire,
            prove,
        };
        record.read = Some(CachedRead {
            objects: 5,
            saved,
            ..CachedRead::default()
        });
        let entry = entry(&record, Some(&ended(0, End::TooSlow)));
        assert_eq!(entry.waited, Duration::from_millis(7));
        assert_eq!(entry.cpu, Duration::from_micros(3));
        assert_eq!(account.total(), Duration::ZERO);
        assert_eq!((entry.objects, entry.saved), (5, saved));
        // The read says so, and not the query.
        assert!(!entry.is_unversioned && !entry.starts_list);
        assert!(entry.was_stalled);
        // Clients can't make up names of resources.
        assert_eq!(entry.operation.resource, "");
    }
}
