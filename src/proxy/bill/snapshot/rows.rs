//! The rows of clients and operations, and their numbers.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::Serialize;

use crate::bill::advice::{Advice, AdviceKind, Context, advise};
use crate::bill::table::{Client, ClientUsage, Count, Counts, OperationUsage, SelectorClass, Slow};

/// A client: a user with one of its programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientName {
    /// The number of the user; the page users has its name. Absent if the user is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_number: Option<u64>,
    /// The address of a client whose user is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Product and version of the program. Clients may send anything. Further programs of a user
    /// with eight rows have one row, `(other programs)`. Empty if the user is not known.
    pub user_agent: String,
}

/// One piece of advice, with the client that it is about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdviceRow {
    /// The client.
    pub client: ClientName,
    /// What the client does.
    pub kind: AdviceKind,
    /// The numbers that show it.
    pub evidence: String,
    /// What to do about it.
    pub fix: String,
}

/// What one client has used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientRow {
    /// The client.
    pub client: ClientName,
    /// Seconds since the row began. `total` has the counts of this time.
    pub seconds: f64,
    /// Watches that are open now.
    pub open_watches: u64,
    /// Watches that were opened in the last minute.
    pub opened_watches: u64,
    /// Since the row began.
    pub total: Numbers,
    /// In the last minute.
    pub minute: Numbers,
    /// Why requests were forwarded, the most frequent reason first.
    pub forwarded: Vec<ForwardedRow>,
    /// The operations with the most requests first.
    pub operations: Vec<OperationRow>,
    /// Answers that are behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowRow>,
    /// Advice.
    pub advice: Vec<Advice>,
}

/// The requests of a client that were forwarded for one reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedRow {
    /// The reason: the label of `kubefan_requests_total`.
    pub reason: &'static str,
    /// Requests, since the row began.
    pub requests: u64,
}

/// What one operation of a client has used.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationRow {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource; empty for a path that is no resource.
    pub resource: String,
    /// How objects are selected.
    pub selector: SelectorClass,
    /// Answers that are open now.
    pub open: u64,
    /// Since the row began.
    pub total: Numbers,
    /// In the last minute.
    pub minute: Numbers,
    /// In the last ten minutes.
    pub ten_minutes: Numbers,
}

/// Answers of a client that are behind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowRow {
    /// The number of these answers.
    pub answers: u64,
    /// The verb of the one that has waited longest.
    pub verb: &'static str,
    /// Its resource, with the group.
    pub resource: String,
    /// Events that its reader has not received.
    pub events: u64,
    /// Seconds for which the oldest of them has waited.
    pub waited_seconds: f64,
    /// Seconds for which the oldest of them will be retained, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<f64>,
}

/// Counts. `docs/bill.md` describes each.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// Requests, refused ones included.
    pub requests: u64,
    /// Requests that a cache answered.
    pub hits: u64,
    /// Requests that were forwarded.
    pub forwards: u64,
    /// Requests that kubefan refused itself.
    pub refusals: u64,
    /// GETs and LISTs of the most recent state, without those that were refused or failed.
    pub unversioned: u64,
    /// Objects in lists.
    pub objects: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Events of watches, including initial events.
    pub events: u64,
    /// Watches that have ended.
    pub watches_ended: u64,
    /// Watches that ended within 5 s.
    pub short_watches: u64,
    /// Seconds for which requests waited for a right, a cache or a proof.
    pub waited_seconds: f64,
    /// Answers with 401.
    pub unauthorized: u64,
    /// Answers with 403.
    pub forbidden: u64,
    /// Answers with 410, and watches that ended with 410 in their stream.
    pub gone: u64,
    /// Answers with 429.
    pub too_many: u64,
    /// Answers that were broken off because they were read too slowly.
    pub stalls: u64,
    /// Seconds of kubefan's CPU time, by samples. They may become less.
    pub cpu_seconds: f64,
    /// What the API server was saved.
    pub saved: Saved,
}

/// What the API server was saved.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Requests.
    pub requests: u64,
    /// Objects in lists.
    pub objects: u64,
    /// Events of watches.
    pub events: u64,
    /// Seats at the start of requests.
    pub seats: u64,
    /// An estimate of the CPU time, in seconds.
    pub estimated_cpu_seconds: f64,
}

// === impl ClientName, AdviceRow, ClientRow, OperationRow, SlowRow, Numbers ===

impl ClientName {
    fn new(client: &Client, number_of: &dyn Fn(&str) -> u64) -> Self {
        let user = Some(client.user.as_str()).filter(|user| !user.is_empty());
        Self {
            user_number: user.map(number_of),
            address: client.address.map(|address| address.to_string()),
            user_agent: client.user_agent.clone(),
        }
    }
}

impl AdviceRow {
    /// Creates the row of `advice` about `client`. `number_of` numbers users.
    pub(in crate::bill) fn new(
        client: &Client,
        advice: Advice,
        number_of: &dyn Fn(&str) -> u64,
    ) -> Self {
        let Advice {
            kind,
            evidence,
            fix,
        } = advice;
        Self {
            client: ClientName::new(client, number_of),
            kind,
            evidence,
            fix,
        }
    }
}

impl ClientRow {
    pub(super) fn new(
        usage: &ClientUsage,
        context: Context<'_>,
        number_of: &dyn Fn(&str) -> u64,
    ) -> Self {
        let mut operations: Vec<&OperationUsage> = usage.operations.iter().collect();
        operations.sort_by_key(|operation| Reverse(operation.total.get(Count::Requests)));
        let mut reasons = usage.reasons.clone();
        reasons.sort_by_key(|(_, requests)| Reverse(*requests));
        let forwarded = reasons.into_iter();
        Self {
            client: ClientName::new(&usage.client, number_of),
            seconds: usage.age.as_secs_f64(),
            open_watches: usage.open_watches,
            opened_watches: usage.minute.get(Count::WatchesOpened),
            total: Numbers::new(&usage.total),
            minute: Numbers::new(&usage.minute),
            forwarded: forwarded
                .map(|(reason, requests)| ForwardedRow { reason, requests })
                .collect(),
            operations: operations.into_iter().map(OperationRow::new).collect(),
            slow: usage.slow.as_ref().map(SlowRow::new),
            advice: advise(usage, context),
        }
    }
}

impl OperationRow {
    fn new(usage: &OperationUsage) -> Self {
        let operation = &usage.operation;
        Self {
            verb: operation.verb,
            group: operation.group.clone(),
            resource: operation.resource.clone(),
            selector: operation.selector,
            open: usage.open,
            total: Numbers::new(&usage.total),
            minute: Numbers::new(&usage.minute),
            ten_minutes: Numbers::new(&usage.ten_minutes),
        }
    }
}

impl SlowRow {
    fn new(slow: &Slow) -> Self {
        let behind = &slow.behind;
        Self {
            answers: slow.answers,
            verb: slow.operation.verb,
            resource: slow.operation.group_resource(),
            events: behind.events,
            waited_seconds: behind.waited.as_secs_f64(),
            remaining_seconds: behind.remaining.map(|remaining| remaining.as_secs_f64()),
        }
    }
}

impl Numbers {
    pub(super) fn new(counts: &Counts) -> Self {
        let count = |count| counts.get(count);
        Self {
            requests: count(Count::Requests),
            hits: count(Count::Hits),
            forwards: count(Count::Forwards),
            refusals: count(Count::Refusals),
            unversioned: count(Count::Unversioned),
            objects: count(Count::Objects),
            bytes: count(Count::Bytes),
            events: count(Count::Events),
            watches_ended: count(Count::WatchesEnded),
            short_watches: count(Count::ShortWatches),
            waited_seconds: count(Count::Waited) as f64 / 1e6,
            unauthorized: count(Count::Unauthorized),
            forbidden: count(Count::Forbidden),
            gone: count(Count::Gone),
            too_many: count(Count::TooMany),
            stalls: count(Count::Stalls),
            cpu_seconds: count(Count::Cpu) as f64 / 1e9,
            saved: Saved {
                requests: count(Count::SavedRequests),
                objects: count(Count::SavedObjects),
                events: count(Count::SavedEvents),
                seats: count(Count::SavedSeats),
                estimated_cpu_seconds: count(Count::SavedCpu) as f64 / 1e9,
            },
        }
    }
}
