//! The pages of the bill: what each client uses, and what it should change.

use kubefan_core::api::Status;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::bill::{
    AdviceRow, ClientRow, Context, CpuShares, LargestRow, Numbers, Snapshot, SnapshotOptions,
    process_time, serving_time,
};
use crate::net::ServingThreads;
use crate::server::admin::api::page::{Page, now};
use crate::server::admin::api::sources::Sources;

/// The most clients that are shown because of their requests.
const TOP: usize = 50;
/// The most clients that are shown because of each column.
const TOP_OF_COLUMN: usize = 3;
/// The most advice of the page.
const MOST_ADVICE: usize = 200;

/// What each client uses, and what it saves the API server.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Bill {
    /// When the page was made, by RFC 3339.
    time: String,
    /// Seconds since the bill began, at the start of kubefan.
    seconds: f64,
    /// The number of clients with rows, at most 1,024. Further ones are only in other.
    clients_with_rows: usize,
    /// The 50 clients with the most requests in the last minute, and the first three of each other
    /// column. Those with the most requests come first.
    clients: Vec<ClientRow>,
    /// The first three clients of each column: requests, forwards, objects, bytes, events, open,
    /// opened, waited, unauthorized, forbidden, gone, tooMany, stalls, slow, cpu, saved. A column
    /// that is 0 for all is absent.
    largest: Vec<LargestRow>,
    /// All requests since the bill began.
    total: Numbers,
    /// The part of total that belongs to no row: requests of clients whose rows gave way to others.
    other: Numbers,
    /// kubefan's CPU time.
    cpu: CpuShares,
}

/// What clients should change.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct AllAdvice {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The number of pieces of advice, even if the list has fewer.
    total: usize,
    /// The advice for the clients with the most requests in the last minute first, at most 200.
    items: Vec<AdviceRow>,
}

impl Page for Bill {
    const NAME: &'static str = "bill";
    const SUMMARY: &'static str =
        "What each client uses, what it saves the API server, and what it should change.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let number_of = |user: &str| sources.number_of(user);
        // Read before that of the process, so that it is not the longer one.
        let serving_cpu = serving_time(ServingThreads::NAME);
        let process_cpu = process_time();
        let session_resources = sources.session_resources();
        let options = SnapshotOptions {
            top: TOP,
            top_of_column: TOP_OF_COLUMN,
            context: Context {
                session_resources: &session_resources,
            },
            process_cpu,
            serving_cpu: serving_cpu.unwrap_or(process_cpu),
            number_of: &number_of,
        };
        let Snapshot {
            seconds,
            clients_with_rows,
            clients,
            largest,
            total,
            other,
            cpu,
        } = sources.bill()?.snapshot(&options, Instant::now());
        Ok(Self {
            time: now(),
            seconds,
            clients_with_rows,
            clients,
            largest,
            total,
            other,
            cpu,
        })
    }
}

impl Page for AllAdvice {
    const NAME: &'static str = "advice";
    const SUMMARY: &'static str = "What clients do that costs much, and what they should change.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        let bill = sources.bill()?;
        let session_resources = sources.session_resources();
        let context = Context {
            session_resources: &session_resources,
        };
        let number_of = |user: &str| sources.number_of(user);
        let mut items = bill.advice(context, &number_of, Instant::now());
        let total = items.len();
        items.truncate(MOST_ADVICE);
        Ok(Self {
            time: now(),
            total,
            items,
        })
    }
}
