//! The policy `session` with one caller, and writes of this caller through kubefan.
//!
//! The rows that a cache can answer and that name no version are compared while nothing changes, and
//! again after writes, while kubefan's watches are late. A cache must answer all of them, also the
//! GETs.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::answerers::answerers;
use super::fixture::{Fixture, KUBEFAN_FLAGS, objects, start_server, text};
use super::table::{Protocol, Row};
use super::{TABLES, check, older, run, table};
use crate::support::clients::client::Client;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::fault_proxy::FaultProxy;

/// The number of rows that are compared after the writes of one round.
const ROWS_OF_ROUND: usize = 16;
/// The delay of kubefan's watches in the rounds. A cache that does not wait for the writes is stale.
const LATE: Duration = Duration::from_millis(50);
/// The resources with objects that are copied and deleted. A copy of a Service could not have its
/// address, and a deleted Job would wait for a garbage collector.
const COPIED: [&str; 6] = [
    "configmaps",
    "nodes",
    "pods",
    "secrets",
    "shapes",
    "planets",
];
const COPY: &str = "written";

/// The first object that objects.txt creates of a resource. The caller changes it, and creates and
/// deletes copies of it.
struct WrittenObject {
    collection: String,
    object: Value,
    /// The number of writes so far.
    writes: usize,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn every_read_of_a_session_is_answered_as_by_the_api_server() {
    let server = start_server().await;
    let proxy = FaultProxy::start(&server).await;
    let config = server.directory().join("through-the-proxy");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let flags = [&KUBEFAN_FLAGS[..], &["--freshness", "session"]].concat();
    let kubefan = Kubefan::start_with(&config, &flags).await;
    let fixture = Fixture::of(server, kubefan).await;
    let rows = rows(fixture.server.minor());
    let mut written = written_objects();
    for row in &rows {
        let is_written = written.iter().any(|object| object.is_read_by(row));
        assert!(is_written, "{}: no write precedes it", row.location);
    }
    let mut changing = rows.clone();
    for row in &mut changing {
        // The copies are items, too.
        row.items = None;
    }

    let mut compared = run(&fixture, &rows, 0).await;
    proxy.delay_watches(LATE);
    let caller = fixture.through(Protocol::Http1);
    for rows in changing.chunks(ROWS_OF_ROUND) {
        write(&mut written, rows, caller).await;
        compared.extend(run(&fixture, rows, compared.len()).await);
    }
    let log = answerers(&fixture.kubefan.log());
    check("differential, sessions", &compared, &log);
    assert!(compared.len() >= 1_000, "{} cases", compared.len());
}

/// Returns the rows that a session answers. With the policy of the tables, the GETs among them are
/// forwarded.
fn rows(minor: u32) -> Vec<Row> {
    let rows = TABLES.into_iter().flat_map(table::rows).collect();
    let (mut rows, _) = older::without_differences(rows, minor);
    rows.retain(is_of_session);
    for row in &mut rows {
        "cache".clone_into(&mut row.answerer);
    }
    rows
}

/// Returns true if a cache can answer the row, and the row names no version, not even in a continue
/// token.
fn is_of_session(row: &Row) -> bool {
    let is_of_version = row.parameter("resourceVersion").is_some()
        || ["{next}", "{next-bare}"]
            .iter()
            .any(|token| row.target.contains(token));
    let mut answerers = row.answerer.split('|');
    let is_cached = answerers.all(|answerer| matches!(answerer, "cache" | "consistent"));
    // No Event changes while the rows are compared, so a session of Events can't be proven.
    let is_of_events = row.resource() == Some("events");
    is_cached && !row.is_watch() && !is_of_version && !is_of_events
}

fn written_objects() -> Vec<WrittenObject> {
    let mut known = HashSet::new();
    let mut made = objects();
    made.retain(|entry| entry.method == http::Method::POST);
    let objects = made.into_iter().map(|entry| WrittenObject {
        object: entry.value(),
        collection: entry.path,
        writes: 0,
    });
    objects
        .filter(|object| known.insert(object.resource().to_owned()))
        .collect()
}

/// Writes an object of each resource that `rows` read.
async fn write(written: &mut [WrittenObject], rows: &[Row], caller: &Client) {
    let read = written
        .iter_mut()
        .filter(|object| rows.iter().any(|row| object.is_read_by(row)));
    join_all(read.map(|object| object.write(caller))).await;
}

impl WrittenObject {
    fn resource(&self) -> &str {
        self.collection.rsplit('/').next().unwrap_or_default()
    }

    fn is_read_by(&self, row: &Row) -> bool {
        row.resource() == Some(self.resource())
    }

    /// Changes the object, creates a copy, or deletes the copy, in turn.
    async fn write(&mut self, caller: &Client) {
        self.writes += 1;
        let is_copied = COPIED.contains(&self.resource());
        let collection = &self.collection;
        let answer = match self.writes % 3 {
            2 if is_copied => {
                let mut copy = self.object.clone();
                copy["metadata"]["name"] = json!(COPY);
                caller.create(collection, &copy).await
            }
            0 if is_copied => {
                let copy = format!("{collection}/{COPY}?gracePeriodSeconds=0");
                caller.delete(&copy).await
            }
            _ => {
                let name = text(&self.object["metadata"]["name"]);
                let note = json!({ "suite.kubefan.io/writes": self.writes.to_string() });
                let change = json!({ "metadata": { "annotations": note } });
                caller.merge(&format!("{collection}/{name}"), &change).await
            }
        };
        answer.ok();
    }
}
