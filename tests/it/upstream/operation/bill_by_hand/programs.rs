//! The programs of the rig: what each sends, and what it counts of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, interval, sleep_until};

use super::is_cached;
use crate::support::clients::client::{Client, chain};

/// The group of the users that may read ConfigMaps.
pub(super) const GROUP: &str = "rig";
/// How long the open watches stay open after the load, so that they deliver its last events.
const AFTER: Duration = Duration::from_secs(3);
const JSON: &str = "application/json";
const SMALL: &str = "/api/v1/namespaces/small/configmaps";
const OBJECT: &str = "/api/v1/namespaces/small/configmaps/object-7";

/// A program, and what the bill must show of it.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The column in which it is first; `None` for the good one.
    pub(super) column: Option<&'static str>,
    /// The kinds of its advice, in the order of the bill.
    pub(super) advice: &'static [&'static str],
    path: &'static str,
    accept: &'static str,
    pub(super) credentials: Credentials,
    /// The statuses of all its answers.
    statuses: &'static [u16],
    load: Load,
}

/// The credentials of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A token of a user that may read ConfigMaps.
    OfReader,
    /// A token of a user without rights.
    OfStranger,
    /// A token that the API server does not know.
    Wrong,
}

#[derive(Clone, Copy)]
enum Load {
    /// Requests per second, from some workers that each wait for the end of their answer.
    Loop { rate: f64, workers: u32 },
    /// A watch that is not read before the end of the load.
    Stalled,
    /// An informer: a list, and a watch from its version. It gets an object now and then.
    Informer,
}

/// What most programs have in common.
const USUAL: Program = Program {
    name: "",
    column: None,
    advice: &[],
    path: SMALL,
    accept: JSON,
    credentials: Credentials::OfReader,
    statuses: &[200],
    load: Load::Informer,
};

/// Ten bad programs and a good one. The rates make each bad one first in its column: the others
/// have less of what it counts.
pub(super) static PROGRAMS: [Program; 11] = [
    Program {
        name: "stalled-reader",
        column: Some("slow"),
        advice: &["slowReader"],
        path: "/api/v1/namespaces/changing/configmaps?watch=1&resourceVersion=0",
        load: Load::Stalled,
        ..USUAL
    },
    Program {
        name: "list-loop",
        column: Some("objects"),
        advice: &["listLoop"],
        load: Load::Loop {
            rate: 20.0,
            workers: 2,
        },
        ..USUAL
    },
    // It reads all objects by a new watch each second. Such watches are short, too.
    Program {
        name: "relist-loop",
        column: Some("events"),
        advice: &["relistLoop", "watchReopened"],
        path: "/api/v1/namespaces/small/configmaps?watch=1&sendInitialEvents=true\
               &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1",
        load: Load::Loop {
            rate: 4.0,
            workers: 4,
        },
        ..USUAL
    },
    // The namespace is empty, so there are no events.
    Program {
        name: "reconnect-loop",
        column: Some("opened"),
        advice: &["watchReopened"],
        path: "/api/v1/namespaces/quiet/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1",
        load: Load::Loop {
            rate: 12.0,
            workers: 12,
        },
        ..USUAL
    },
    // Only lists count: watches with one selection share its comparisons. By the estimate, the API
    // server would compare all objects for each list. So the column is what is saved.
    Program {
        name: "unindexed-selector",
        column: Some("saved"),
        advice: &["unindexedSelector"],
        path: "/api/v1/configmaps?resourceVersion=0&labelSelector=app%3Drare",
        load: Load::Loop {
            rate: 80.0,
            workers: 2,
        },
        ..USUAL
    },
    // Its user is not known, so its row is that of the address.
    Program {
        name: "wrong-credentials",
        column: Some("unauthorized"),
        advice: &["wrongCredentials"],
        credentials: Credentials::Wrong,
        statuses: &[401],
        load: Load::Loop {
            rate: 5.0,
            workers: 1,
        },
        ..USUAL
    },
    // An API server answers in CBOR only if its feature gate says so.
    Program {
        name: "cbor-only",
        column: Some("forwards"),
        advice: &["otherFormat"],
        path: "/api/v1/namespaces/small/configmaps?resourceVersion=0",
        accept: "application/cbor",
        statuses: &[200, 406],
        load: Load::Loop {
            rate: 20.0,
            workers: 2,
        },
        ..USUAL
    },
    Program {
        name: "huge-lists",
        column: Some("bytes"),
        advice: &["hugeLists"],
        path: "/api/v1/namespaces/huge/configmaps?resourceVersion=0",
        load: Load::Loop {
            rate: 2.0,
            workers: 1,
        },
        ..USUAL
    },
    Program {
        name: "denied-reads",
        column: Some("forbidden"),
        advice: &["deniedReads"],
        path: "/api/v1/namespaces/small/configmaps?resourceVersion=0",
        credentials: Credentials::OfStranger,
        statuses: &[403],
        load: Load::Loop {
            rate: 10.0,
            workers: 1,
        },
        ..USUAL
    },
    Program {
        name: "get-loop",
        column: Some("requests"),
        advice: &["getLoop"],
        path: OBJECT,
        load: Load::Loop {
            rate: 120.0,
            workers: 4,
        },
        ..USUAL
    },
    Program {
        name: "good",
        ..USUAL
    },
];

/// A running program, and what it has counted.
pub(super) struct Sender {
    pub(super) program: &'static Program,
    client: Client,
    requests: AtomicU64,
    bytes: AtomicU64,
    events: AtomicU64,
}

// === impl Program, Sender ===

impl Program {
    fn token(&self) -> String {
        format!("{}-token", self.name)
    }

    /// Returns the line of the API server's file of tokens, if it has one.
    pub(super) fn line_of_token(&self) -> Option<String> {
        let group = match self.credentials {
            Credentials::OfReader => GROUP,
            Credentials::OfStranger => "strangers",
            Credentials::Wrong => return None,
        };
        let (name, token) = (self.name, self.token());
        Some(format!("{token},{name},{name},{group}\n"))
    }

    /// Returns the name of the program in the bill.
    pub(super) fn product(&self) -> String {
        format!("{}/v1.0", self.name)
    }
}

impl Sender {
    /// Creates the program, which uses the connections of `client` alone.
    pub(super) fn new(program: &'static Program, client: &Client) -> Self {
        let user_agent = format!("{}.3 (linux/amd64)", program.product());
        let client = client
            .as_token(&program.token())
            .with("user-agent", &user_agent)
            .with("accept", program.accept);
        Self {
            program,
            client,
            requests: AtomicU64::default(),
            bytes: AtomicU64::default(),
            events: AtomicU64::default(),
        }
    }

    /// Reads until caches answer the user: its rights are known, and its session has begun. Another
    /// row of the bill has these requests.
    pub(super) async fn warm_up(&self) {
        if self.program.credentials != Credentials::OfReader {
            return;
        }
        let starter = self.client.with("user-agent", "starter/v1.0");
        let starter = starter.with("accept", JSON);
        for path in [SMALL, OBJECT] {
            is_cached(&starter, path).await;
        }
    }

    /// Sends what the program sends until `end`, and reads all answers to their ends.
    pub(super) async fn run(self: Arc<Self>, end: Instant) {
        match self.program.load {
            Load::Loop { rate, workers } => {
                let period = Duration::from_secs_f64(f64::from(workers) / rate);
                let workers: Vec<_> = (0..workers)
                    .map(|_| self.repeat(self.program.path, period, end))
                    .collect();
                join_all(workers).await;
            }
            Load::Stalled => self.stall(end).await,
            Load::Informer => self.inform(end).await,
        }
    }

    /// Returns the requests, bytes and events that the program has counted.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.requests, &self.bytes, &self.events].map(|count| count.load(Ordering::Relaxed))
    }

    async fn repeat(&self, path: &str, period: Duration, end: Instant) {
        let mut clock = interval(period);
        while Instant::now() < end {
            clock.tick().await;
            self.send(path).await;
        }
    }

    async fn stall(&self, end: Instant) {
        let path = format!("{}&{}", self.program.path, timeout(end));
        let body = self.open(&path).await;
        sleep_until(end).await;
        self.read(body, true).await;
    }

    async fn inform(&self, end: Instant) {
        let path = self.program.path;
        let list = self.client.get(&format!("{path}?resourceVersion=0")).await;
        let list = list.ok();
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.count(&list.body, false);
        let version = list.json()["metadata"]["resourceVersion"].take();
        let version = version.as_str().expect("a version");
        let watch = format!("{path}?watch=1&resourceVersion={version}&{}", timeout(end));
        tokio::join!(
            self.send(&watch),
            self.repeat(OBJECT, Duration::from_secs(1), end),
        );
    }

    /// Sends a GET, and reads the answer to its end.
    async fn send(&self, path: &str) {
        let body = self.open(path).await;
        self.read(body, path.contains("watch=1")).await;
    }

    async fn open(&self, path: &str) -> Incoming {
        let none = HeaderMap::new();
        let opened = self.client.open(Method::GET, path, &none, Bytes::new());
        let response = match opened.await {
            Ok(response) => response,
            Err(error) => panic!("{}: {}", self.program.name, chain(&error)),
        };
        let status = response.status().as_u16();
        let is_expected = self.program.statuses.contains(&status);
        assert!(is_expected, "{}: {status}", self.program.name);
        self.requests.fetch_add(1, Ordering::Relaxed);
        response.into_body()
    }

    async fn read(&self, mut body: Incoming, is_watch: bool) {
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => panic!("{}: {}", self.program.name, chain(&error)),
            };
            if let Some(data) = frame.data_ref() {
                self.count(data, is_watch);
            }
        }
    }

    fn count(&self, data: &[u8], is_watch: bool) {
        self.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        if is_watch {
            // An event in JSON has one line break, at its end.
            let events = memchr::memchr_iter(b'\n', data).count();
            self.events.fetch_add(events as u64, Ordering::Relaxed);
        }
    }
}

/// Returns the parameter of a watch that ends some seconds after `end`.
fn timeout(end: Instant) -> String {
    let lasts = end.saturating_duration_since(Instant::now()) + AFTER;
    format!("timeoutSeconds={}", lasts.as_secs())
}
