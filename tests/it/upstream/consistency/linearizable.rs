//! Clients write and read one resource through two kubefans, and a checker decides whether their
//! reads are linearizable.
//!
//! The test with a name that starts with `long_` is run by hand, with `KUBEFAN_CLIENTS` clients for
//! `KUBEFAN_SECONDS` seconds:
//!
//! ```sh
//! cargo test --test it linearizable -- --ignored --nocapture
//! ```

use std::time::Duration;

use futures::future::join_all;
use memchr::memmem;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, Item, decode_list};
use crate::support::faulty::next;
use crate::support::history::{History, Read, Span, State, Write};
use crate::support::outcomes;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::{dice, setting};

const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const NUMBER: &str = "number-";
const DIGITS: usize = 8;

/// A client that writes one register, and reads all registers.
struct Participant {
    /// One client for each kubefan; each request chooses one at random.
    clients: Vec<Client>,
    path: String,
    register: usize,
    registers: usize,
    dice: StdRng,
    zero: Instant,
    writes: Vec<Write>,
    reads: Vec<Read>,
    refused: u32,
}

impl Participant {
    async fn run(mut self, until: Instant) -> Self {
        while Instant::now() < until {
            match self.dice.random_range(0..10) {
                0..3 => self.write().await,
                3..7 => self.list().await,
                7..9 => self.get().await,
                _ => self.watch().await,
            }
        }
        self
    }

    fn client(&mut self) -> Client {
        self.clients
            .choose(&mut self.dice)
            .expect("a replica")
            .clone()
    }

    fn format(&mut self) -> Format {
        match self.dice.random() {
            true => Format::Json,
            false => Format::Protobuf,
        }
    }

    fn span(&self, began: Instant) -> Span {
        Span {
            began: began - self.zero,
            ended: self.zero.elapsed(),
        }
    }

    async fn write(&mut self) {
        let client = self.client();
        let name = format!("register-{}", self.register);
        let object = format!("{}/{name}", self.path);
        let number = self.writes.len() as u64;
        let data = json!({ "n": format!("{NUMBER}{number:0DIGITS$}") });
        let is_there = self
            .writes
            .last()
            .is_some_and(|write| write.state.is_some());
        let began = Instant::now();
        let (answer, state) = match is_there {
            false => {
                let new_object = json!({ "metadata": { "name": name }, "data": data });
                (client.create(&self.path, &new_object).await, Some(number))
            }
            true if self.dice.random_ratio(1, 6) => (client.delete(&object).await, None),
            true => (
                client.merge(&object, &json!({ "data": data })).await,
                Some(number),
            ),
        };
        let span = self.span(began);
        let version = answer.ok().json()["metadata"]["resourceVersion"]
            .as_str()
            .map(str::to_owned);
        self.writes.push(Write {
            span,
            state,
            version: version.map(|version| version.parse().expect("a number")),
        });
    }

    async fn list(&mut self) {
        let (client, format) = (self.client(), self.format());
        let began = Instant::now();
        let answer = client.get_as(&self.path, format).await;
        let span = self.span(began);
        if answer.status == 429 {
            self.refused += 1;
            return;
        }
        let list = decode_list(format, &answer.ok().body);
        self.record_read(span, &list.resource_version, &list.items);
    }

    async fn watch(&mut self) {
        let (client, format) = (self.client(), self.format());
        let began = Instant::now();
        let path = format!("{}?{WATCH_LIST}", self.path);
        let stream = client.watch(&path, format);
        let mut stream = stream.await.expect("a stream");
        let mut items = Vec::new();
        loop {
            match next(&mut stream).await {
                Event::Added(item) => items.push(item),
                Event::Bookmark {
                    resource_version,
                    initial_events_end: true,
                } => {
                    let span = self.span(began);
                    return self.record_read(span, &resource_version, &items);
                }
                Event::Error { code: 504, .. } => break self.refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn get(&mut self) {
        let (client, format) = (self.client(), self.format());
        let register = self.dice.random_range(0..self.registers);
        let began = Instant::now();
        let answer = client
            .get_as(&format!("{}/register-{register}", self.path), format)
            .await;
        let span = self.span(began);
        let state = match answer.status.as_u16() {
            404 => None,
            _ => number(&answer.ok().body),
        };
        self.reads.push(Read {
            span,
            version: None,
            seen: vec![(register, state)],
        });
    }

    fn record_read(&mut self, span: Span, version: &str, items: &[Item]) {
        let seen = (0..self.registers).map(|register| {
            let key = format!("/register-{register}");
            let item = items.iter().find(|item| item.key.ends_with(&key));
            (register, item.and_then(|item| number(&item.body)))
        });
        self.reads.push(Read {
            span,
            version: Some(version.parse().expect("a number")),
            seen: seen.collect(),
        });
    }
}

/// Returns the number in a register's object. Searches the object as text,
/// which works for both formats.
fn number(body: &[u8]) -> State {
    let at = memmem::find(body, NUMBER.as_bytes()).expect("a number") + NUMBER.len();
    let digits = std::str::from_utf8(&body[at..at + DIGITS]).expect("digits");
    Some(digits.parse().expect("a number"))
}

async fn history(server: &ApiServer, clients: usize, duration: Duration) {
    let mut dice = dice();
    let namespace = server.namespace("history").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let kubefans = [
        Kubefan::start(server, &[]).await,
        Kubefan::start(server, &[]).await,
    ];
    for kubefan in &kubefans {
        for format in [Format::Json, Format::Protobuf] {
            kubefan
                .client()
                .list(&format!("{path}?resourceVersion=0"), format)
                .await;
        }
    }
    let zero = Instant::now();
    let participants = (0..clients).map(|register| Participant {
        clients: kubefans.iter().map(Kubefan::client).collect(),
        path: path.clone(),
        register,
        registers: clients,
        dice: StdRng::seed_from_u64(dice.random()),
        zero,
        writes: Vec::new(),
        reads: Vec::new(),
        refused: 0,
    });
    let running = participants.map(|participant| tokio::spawn(participant.run(zero + duration)));
    let running = join_all(running.collect::<Vec<_>>());
    let participants = within("the history", duration + Duration::from_secs(60), running).await;
    let mut history = History::default();
    let mut refused = 0;
    for participant in participants {
        let participant = participant.expect("the participant finishes");
        history.writes.push(participant.writes);
        history.reads.extend(participant.reads);
        refused += participant.refused;
    }
    let writes: usize = history.writes.iter().map(Vec::len).sum();
    let outcomes = outcomes::list_outcomes(&kubefans, "configmaps").await;
    println!(
        "{clients} clients, {duration:?}: {writes} writes, {} reads, {refused} refused, LISTs {outcomes:?}",
        history.reads.len()
    );
    assert!(writes > clients && history.reads.len() > clients);
    let forwarded = outcomes.get("forwarded").copied().unwrap_or(0);
    assert!(outcomes["cache"] > 9 * forwarded, "{outcomes:?}");
    if let Err(impossible) = history.check() {
        panic!("{impossible}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn reads_of_two_replicas_are_linearizable() {
    let server = shared();
    history(server, 4, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes KUBEFAN_SECONDS (60), with KUBEFAN_CLIENTS (8)"]
async fn long_reads_of_two_replicas_are_linearizable() {
    let server = shared();
    let seconds = Duration::from_secs(setting("KUBEFAN_SECONDS", 60));
    history(server, setting("KUBEFAN_CLIENTS", 8), seconds).await;
}
