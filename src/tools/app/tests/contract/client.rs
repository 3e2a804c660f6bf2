//! A client that follows the rules of list and watch, and compares everything that it receives with
//! the recorded states of the cluster.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kubefan_proxy::net;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::cluster::{Cluster, PODS, Revision, View, key_of};
use super::network::Replica;

/// How long a client waits for a frame. Paused time advances only if no task can run, so no frame
/// is on its way after this.
const QUIET: Duration = Duration::from_millis(1);

/// A client ends a forwarded watch that has sent nothing, not even a bookmark, for this long.
const SILENCE: Duration = Duration::from_secs(90);

/// How long a client must take nothing before kubefan may break its connection.
const WRITE_TIMEOUT: Duration = net::Config::DEFAULT_WRITE_TIMEOUT;

pub(super) type CheckResult = Result<(), String>;

/// The path and the selectors of a client's lists and watches. `selects` applies these selectors as
/// a function, to compute what the client should have.
pub(super) struct Subscription {
    path: &'static str,
    query: &'static str,
    selects: fn(&Value) -> bool,
}

pub(super) const SUBSCRIPTIONS: [Subscription; 7] = [
    Subscription {
        path: "/api/v1/pods",
        query: "",
        selects: |_| true,
    },
    Subscription {
        path: "/api/v1/namespaces/default/pods",
        query: "",
        selects: |pod| pod["metadata"]["namespace"] == "default",
    },
    Subscription {
        path: "/api/v1/namespaces/default-b/pods",
        query: "&fieldSelector=metadata.name%3Dx",
        selects: |pod| {
            pod["metadata"]["namespace"] == "default-b" && pod["metadata"]["name"] == "x"
        },
    },
    Subscription {
        path: "/api/v1/pods",
        query: "&labelSelector=app%3Dweb",
        selects: |pod| pod["metadata"]["labels"]["app"] == "web",
    },
    Subscription {
        path: "/api/v1/pods",
        query: "&labelSelector=app+notin+(web)",
        selects: |pod| pod["metadata"]["labels"]["app"] != "web",
    },
    Subscription {
        path: "/api/v1/pods",
        query: "&fieldSelector=spec.nodeName%3Dn1",
        selects: |pod| pod["spec"]["nodeName"] == "n1",
    },
    Subscription {
        path: "/api/v1/namespaces/default/pods",
        query: "&labelSelector=app%3Dweb&fieldSelector=status.phase%3DRunning",
        selects: |pod| {
            pod["metadata"]["namespace"] == "default"
                && pod["metadata"]["labels"]["app"] == "web"
                && pod["status"]["phase"] == "Running"
        },
    },
];

/// How the client corrupts every third event. The property must detect each kind of corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tamper {
    Drop,
    Duplicate,
    /// The event is handled after the next event.
    Swap,
    /// The event is handled after the next bookmark.
    Postpone,
}

/// The resource version parameters of a client's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// `resourceVersion=0`: any state that the cache has.
    Any,
    /// No version: the most recent state.
    MostRecent,
    /// Not older than the version that the client saw last.
    NotOlder,
    /// Exactly the version that the client saw last.
    Exact,
    /// Not older than that version, in pages of this many objects; a pod changes between two pages.
    Pages(u32),
}

/// The cluster, the kubefans in front of it, and what clients have seen so far.
pub(super) struct Testbed {
    pub(super) cluster: Cluster,
    pub(super) replicas: Vec<Replica>,
    /// For each replica, the newest revision that its cache has returned to a client.
    pub(super) shown: Vec<Revision>,
    /// What happened so far, one line each; printed if the scenario fails.
    pub(super) trace: Vec<String>,
    pub(super) counts: Counts,
}

/// The counts of all scenarios. Tests check that enough happened, because the property
/// also holds if nothing happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) cases: u64,
    pub(super) lists: u64,
    pub(super) changes: u64,
    pub(super) bookmarks: u64,
    pub(super) expired: u64,
    pub(super) resumed: u64,
    /// DELETED events with the version of the event before them: a relist found the deletion.
    pub(super) implied_deletions: u64,
    /// Watches that were cut because their client had taken nothing for long.
    pub(super) abandoned: u64,
}

pub(super) struct Client {
    name: usize,
    subscription: &'static Subscription,
    bookmarks: bool,
    /// `timeoutSeconds` of the client's watches.
    seconds: u32,
    pub(super) replica: usize,
    /// What the client has seen; `None` if it must list before it can watch.
    known: Option<ClientState>,
    stream: Option<Stream>,
    tamper: Option<Tamper>,
    tampered: u32,
    held_back: Option<Value>,
}

/// The objects that a client has, and the revision to resume a watch from.
#[derive(Clone)]
struct ClientState {
    view: View,
    at: Revision,
}

struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
    /// Whether the watch may have been forwarded, so that the API server's faults reach the client.
    is_forwarded: bool,
    last_frame: Instant,
    /// When the client last took something from the connection, or found it empty.
    last_taken: Instant,
    /// True if the client took nothing for [`WRITE_TIMEOUT`], so that kubefan may have closed the
    /// connection. What arrived before that can still be read.
    was_abandoned: bool,
    /// For a watch-list, the initial objects received so far, and the oldest revision that they may
    /// show; `None` after the initial events, and for other watches.
    initial: Option<(View, Revision)>,
    start: u64,
    /// Whether the client had exactly the state of its version when the watch began. If not,
    /// because it had read only a part of a relist's events, events may contradict its objects.
    is_strict: bool,
}

enum Read {
    Line(Vec<u8>),
    Quiet,
    End,
    Broken(String),
}

fn number(value: &Value) -> Result<u64, String> {
    let text = value["metadata"]["resourceVersion"].as_str();
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("no version in {value}"))
}

fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// Lists the keys and versions of the objects, for messages.
fn brief(view: &View) -> String {
    let entries = view.iter().map(|(key, object)| {
        let version = &object["metadata"]["resourceVersion"];
        format!("{key}@{}", version.as_str().unwrap_or("?"))
    });
    entries.collect::<Vec<_>>().join(" ")
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = Value::Null;
    object
}

async fn read_json(response: Response<Incoming>) -> Result<Value, String> {
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| format!("body: {error}"))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| format!("body: {error}"))
}

// === impl Subscription ===

impl Subscription {
    fn select(&self, state: &View) -> View {
        let selected = state.iter().filter(|(_, object)| (self.selects)(object));
        selected
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect()
    }
}

// === impl Testbed ===

impl Testbed {
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        self.trace.push(what());
    }

    /// Records that a replica's cache returned the state at `at`. Fails if the cache
    /// went back to an older state.
    fn record_shown(&mut self, replica: usize, at: Revision) -> CheckResult {
        let shown = &mut self.shown[replica];
        if at < *shown {
            return Err(format!("replica {replica} shows {at:?} after {shown:?}"));
        }
        *shown = at;
        Ok(())
    }

    /// Sends a GET. Returns `None` for failures that the contract allows: 429, and the API server's
    /// failures if the request may be forwarded.
    async fn get(
        &self,
        replica: usize,
        target: &str,
        may_forward: bool,
    ) -> Result<Option<Response<Incoming>>, String> {
        let response = match self.replicas[replica].get(target).await {
            Ok(response) => response,
            Err(_) if may_forward => return Ok(None),
            Err(error) => return Err(error),
        };
        let content_type = response.headers().get("content-type");
        let is_json = content_type.is_some_and(|value| value == "application/json");
        match response.status().as_u16() {
            200 if is_json => Ok(Some(response)),
            404 if is_json => Ok(Some(response)),
            429 => Ok(None),
            200 | 404 | 410 | 500 | 503 | 504 if may_forward => Ok(None),
            code => Err(format!(
                "GET {target}: {code}: {:?}",
                read_json(response).await
            )),
        }
    }
}

// === impl Client ===

impl Client {
    pub(super) fn new(name: usize, subscription: usize, bookmarks: bool, seconds: u32) -> Self {
        Self {
            name,
            subscription: &SUBSCRIPTIONS[subscription],
            bookmarks,
            seconds,
            replica: 0,
            known: None,
            stream: None,
            tamper: None,
            tampered: 0,
            held_back: None,
        }
    }

    pub(super) fn with_tamper(mut self, tamper: Option<Tamper>) -> Self {
        self.tamper = tamper;
        self
    }

    /// Closes the watch. The client remembers its objects and its version.
    pub(super) fn cut(&mut self) {
        self.stream = None;
        self.held_back = None;
    }

    /// Gives the client an old state (`behind` versions ago), as if listed at the API server then.
    pub(super) fn arrive(&mut self, testbed: &mut Testbed, behind: u64) {
        self.cut();
        let at = testbed.cluster.earlier(behind);
        let view = self.subscription.select(testbed.cluster.state(at));
        testbed.note(|| format!("client {} arrives with {at:?}", self.name));
        self.known = Some(ClientState { view, at });
    }

    /// Lists and checks the answer. A failure that the contract allows leaves the client unchanged.
    pub(super) async fn list(&mut self, testbed: &mut Testbed, how: List) -> CheckResult {
        let requested_at = testbed.cluster.now();
        let last = self.known.as_ref().map_or(1, |known| known.at.version);
        let parameters = match how {
            List::Any => "resourceVersion=0".to_owned(),
            List::MostRecent => String::new(),
            List::NotOlder => format!("resourceVersion={last}"),
            List::Exact => format!("resourceVersion={last}&resourceVersionMatch=Exact"),
            List::Pages(limit) => {
                format!("resourceVersion={last}&resourceVersionMatch=NotOlderThan&limit={limit}")
            }
        };
        let Subscription { path, query, .. } = self.subscription;
        let mut target = format!("{path}?{parameters}{query}");
        let mut view = View::new();
        let mut version = None;
        loop {
            let may_forward = how != List::Any;
            let Some(response) = testbed.get(self.replica, &target, may_forward).await? else {
                return Ok(());
            };
            let mut list = match read_json(response).await {
                Ok(list) => list,
                Err(_) if may_forward => return Ok(()),
                Err(error) => return Err(error),
            };
            let of_page = number(&list)?;
            if version.is_some_and(|version| version != of_page) {
                return Err(format!("a page at {of_page} after one at {version:?}"));
            }
            version = Some(of_page);
            let items = list["items"].take();
            for mut item in items.as_array().cloned().unwrap_or_default() {
                item["kind"] = "Pod".into();
                item["apiVersion"] = "v1".into();
                let key = key(&item);
                if view.last_key_value().is_some_and(|(last, _)| *last >= key) {
                    return Err(format!("{key} is out of order"));
                }
                view.insert(key, Arc::new(item));
            }
            let Some(token) = list["metadata"]["continue"].as_str() else {
                break;
            };
            let List::Pages(limit) = how else {
                return Err("a page, although the request had no limit".to_owned());
            };
            target = format!("{path}?limit={limit}&continue={token}{query}");
            testbed
                .cluster
                .put(view.len() % PODS.len(), limit as usize % 2, 0);
        }
        let version = version.expect("a list has at least one page");
        let at = testbed.cluster.revision_of(version);
        let at = at.ok_or_else(|| format!("a list at {version}, which the cluster never had"))?;
        testbed.note(|| format!("client {} lists ({how:?}): {at:?}", self.name));
        match how {
            List::Any => testbed.record_shown(self.replica, at)?,
            List::MostRecent if at < requested_at => return Err(format!("{at:?} is too old")),
            List::Exact if version != last => return Err(format!("not exactly {last}")),
            _ if version < last && how != List::MostRecent => {
                return Err(format!("a list at {version}, which is older than {last}"));
            }
            _ => {}
        }
        self.cut();
        self.check(testbed, &view, at, "the list")?;
        testbed.counts.lists += 1;
        self.known = Some(ClientState { view, at });
        Ok(())
    }

    /// Opens a watch from the client's version; lists first if the client has none.
    pub(super) async fn watch(&mut self, testbed: &mut Testbed) -> CheckResult {
        self.cut();
        // kubefan cannot recognise every version of a history that a restored backup has ended. A
        // client with such a version therefore lists again.
        let now = testbed.cluster.now();
        self.known.take_if(|known| known.at.history != now.history);
        if self.known.is_none() {
            self.list(testbed, List::Any).await?;
        }
        let Some(ClientState { view, at }) = self.known.clone() else {
            return Ok(());
        };
        let target = self.watch_target(&format!("resourceVersion={}", at.version));
        let Some(response) = testbed.get(self.replica, &target, false).await? else {
            return Ok(());
        };
        let is_strict = view == self.subscription.select(testbed.cluster.state(at));
        testbed.note(|| {
            format!(
                "client {} watches from {at:?}, strict {is_strict}",
                self.name
            )
        });
        testbed.counts.resumed += 1;
        self.stream = Some(Stream {
            body: response.into_body(),
            buffer: Vec::new(),
            last_frame: Instant::now(),
            last_taken: Instant::now(),
            was_abandoned: false,
            is_forwarded: false,
            initial: None,
            start: at.version,
            is_strict,
        });
        Ok(())
    }

    /// Opens a watch-list: a watch that begins with the objects of the most recent state
    /// (`is_recent`) or of any state.
    pub(super) async fn watch_list(
        &mut self,
        testbed: &mut Testbed,
        is_recent: bool,
    ) -> CheckResult {
        self.cut();
        let least = if is_recent {
            testbed.cluster.now()
        } else {
            testbed.shown[self.replica]
        };
        let version = if is_recent { "" } else { "0" };
        let target = self.watch_target(&format!(
            "resourceVersion={version}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        ));
        let target = if self.bookmarks {
            target
        } else {
            format!("{target}&allowWatchBookmarks=true")
        };
        let Some(response) = testbed.get(self.replica, &target, is_recent).await? else {
            return Ok(());
        };
        testbed.note(|| {
            format!(
                "client {} opens a watch-list, recent {is_recent}",
                self.name
            )
        });
        self.bookmarks = true;
        self.stream = Some(Stream {
            body: response.into_body(),
            buffer: Vec::new(),
            last_frame: Instant::now(),
            last_taken: Instant::now(),
            was_abandoned: false,
            is_forwarded: is_recent,
            initial: Some((View::new(), least)),
            start: 0,
            is_strict: true,
        });
        Ok(())
    }

    fn watch_target(&self, start: &str) -> String {
        let Subscription { path, query, .. } = self.subscription;
        let bookmarks = if self.bookmarks {
            "&allowWatchBookmarks=true"
        } else {
            ""
        };
        let seconds = self.seconds;
        format!("{path}?watch=true&{start}&timeoutSeconds={seconds}{bookmarks}{query}")
    }

    /// Gets a pod, the most recent state (`is_recent`) or any cached one, and checks that the
    /// cluster had this object.
    pub(super) async fn get(
        &self,
        testbed: &mut Testbed,
        pod: usize,
        is_recent: bool,
    ) -> CheckResult {
        let (namespace, name) = PODS[pod];
        let parameters = if is_recent { "" } else { "?resourceVersion=0" };
        let target = format!("/api/v1/namespaces/{namespace}/pods/{name}{parameters}");
        let Some(response) = testbed.get(self.replica, &target, true).await? else {
            return Ok(());
        };
        let is_found = response.status() == 200;
        let Ok(object) = read_json(response).await else {
            return Ok(());
        };
        let current = testbed
            .cluster
            .state(testbed.cluster.now())
            .get(&key_of(pod));
        if is_recent && current.map(|current| &**current) != is_found.then_some(&object) {
            return Err(format!("GET {target}: {object}, not {current:?}"));
        }
        if is_found {
            let version = number(&object)?;
            let at = testbed
                .cluster
                .revision_of(version)
                .ok_or("a version that the cluster never had")?;
            let stored = testbed.cluster.state(at).get(&key_of(pod));
            if stored.map(|stored| &**stored) != Some(&object) {
                return Err(format!("GET {target}: {object}, which never existed"));
            }
        }
        Ok(())
    }

    /// Handles up to `limit` frames that have arrived, without waiting for others.
    pub(super) async fn read(&mut self, testbed: &mut Testbed, limit: usize) -> CheckResult {
        for _ in 0..limit {
            let Some(stream) = &mut self.stream else {
                return Ok(());
            };
            match stream.next().await {
                // The API server would send bookmarks. On a forwarded watch, only the client can
                // notice that they are missing.
                Read::Quiet if stream.is_forwarded && stream.last_frame.elapsed() > SILENCE => {
                    self.cut();
                }
                Read::Quiet => return Ok(()),
                Read::Line(line) => match serde_json::from_slice(&line) {
                    Ok(event) => self.take(testbed, event)?,
                    Err(_) if stream.is_forwarded => self.cut(),
                    Err(error) => return Err(format!("{error}: {line:?}")),
                },
                Read::End if stream.buffer.is_empty() || stream.is_forwarded => {
                    testbed.note(|| format!("client {}: end", self.name));
                    self.cut();
                }
                Read::End | Read::Broken(_) if stream.was_abandoned => {
                    testbed.note(|| format!("client {}: cut, because it did not read", self.name));
                    testbed.counts.abandoned += 1;
                    self.cut();
                }
                Read::End => return Err("the watch ended within a frame".to_owned()),
                Read::Broken(_) if stream.is_forwarded => self.cut(),
                Read::Broken(error) => return Err(format!("the watch broke: {error}")),
            }
        }
        Ok(())
    }

    /// Opens a watch if none is open, lists before it if necessary, and handles all frames that
    /// have arrived.
    pub(super) async fn follow(&mut self, testbed: &mut Testbed) -> CheckResult {
        if self.stream.is_none() {
            self.watch(testbed).await?;
        }
        self.read(testbed, usize::MAX).await
    }

    /// Returns whether the client has exactly the objects that its
    /// selectors match in the current state.
    pub(super) fn is_current(&self, testbed: &Testbed) -> bool {
        let now = self
            .subscription
            .select(testbed.cluster.state(testbed.cluster.now()));
        self.known.as_ref().is_some_and(|known| known.view == now)
    }

    pub(super) fn describe(&self, testbed: &Testbed) -> String {
        let now = self
            .subscription
            .select(testbed.cluster.state(testbed.cluster.now()));
        let known = self.known.as_ref();
        format!(
            "client {} ({}?{}) has {:?} of [{}], not {:?} of [{}]; watching: {}",
            self.name,
            self.subscription.path,
            self.subscription.query,
            known.map(|known| known.at),
            known.map(|known| brief(&known.view)).unwrap_or_default(),
            testbed.cluster.now(),
            brief(&now),
            self.stream.is_some(),
        )
    }

    fn check(&self, testbed: &Testbed, view: &View, at: Revision, what: &str) -> CheckResult {
        let expected = self.subscription.select(testbed.cluster.state(at));
        if *view == expected {
            Ok(())
        } else {
            Err(format!(
                "client {}: {what} at {at:?} is [{}], not [{}]",
                self.name,
                brief(view),
                brief(&expected)
            ))
        }
    }

    /// Handles an event, after dropping, repeating or delaying it if the client has a [`Tamper`].
    fn take(&mut self, testbed: &mut Testbed, event: Value) -> CheckResult {
        let is_live = self.stream.as_ref().is_some_and(|s| s.initial.is_none());
        let is_bookmark = event["type"] == "BOOKMARK";
        if !is_live || event["type"] == "ERROR" {
            return self.event(testbed, &event);
        }
        if let Some(held_back) = self
            .held_back
            .take_if(|_| is_bookmark || self.tamper == Some(Tamper::Swap))
        {
            self.event(testbed, &event)?;
            return self.event(testbed, &held_back);
        }
        if is_bookmark {
            return self.event(testbed, &event);
        }
        self.tampered += 1;
        match self.tamper {
            Some(Tamper::Drop) if self.tampered.is_multiple_of(3) => Ok(()),
            Some(Tamper::Duplicate) if self.tampered.is_multiple_of(3) => {
                self.event(testbed, &event)?;
                self.event(testbed, &event)
            }
            Some(Tamper::Swap | Tamper::Postpone) if self.tampered.is_multiple_of(3) => {
                self.held_back = Some(event);
                Ok(())
            }
            _ => self.event(testbed, &event),
        }
    }

    fn event(&mut self, testbed: &mut Testbed, event: &Value) -> CheckResult {
        let object = &event["object"];
        let event_type = event["type"].as_str().unwrap_or_default().to_owned();
        testbed.note(|| {
            let version = number(object).unwrap_or_default();
            format!(
                "client {}: {event_type} {}@{version}",
                self.name,
                key(object)
            )
        });
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if event_type == "ERROR" {
            let is_expected = object["code"] == 410 || stream.is_forwarded;
            if !is_expected {
                return Err(format!("client {}: {event}", self.name));
            }
            testbed.counts.expired += 1;
            self.cut();
            self.known = None;
            return Ok(());
        }
        if stream.initial.is_some() {
            return self.initial(testbed, &event_type, object);
        }
        if event_type == "BOOKMARK" {
            return self.bookmark(testbed, number(object)?);
        }
        self.change(testbed, &event_type, object)
    }

    fn initial(&mut self, testbed: &mut Testbed, event_type: &str, object: &Value) -> CheckResult {
        let stream = self.stream.as_mut().expect("the event is from a stream");
        let (view, least) = stream
            .initial
            .as_mut()
            .expect("no end of the initial events yet");
        let end = &object["metadata"]["annotations"]["k8s.io/initial-events-end"];
        match event_type {
            "ADDED" => {
                let key = key(object);
                if view.last_key_value().is_some_and(|(last, _)| *last >= key) {
                    return Err(format!("client {}: {key} is out of order", self.name));
                }
                view.insert(key, Arc::new(object.clone()));
                Ok(())
            }
            "BOOKMARK" if end == "true" => {
                let (view, least) = (std::mem::take(view), *least);
                stream.initial = None;
                let version = number(object)?;
                stream.start = version;
                let is_forwarded = stream.is_forwarded;
                let at = testbed
                    .cluster
                    .revision_of(version)
                    .ok_or("a version that the cluster never had")?;
                if at < least {
                    return Err(format!("initial events at {at:?}, older than {least:?}"));
                }
                if !is_forwarded {
                    // Other clients may have seen a newer state since this watch was opened.
                    let shown = &mut testbed.shown[self.replica];
                    *shown = at.max(*shown);
                }
                self.check(testbed, &view, at, "the initial state")?;
                self.known = Some(ClientState { view, at });
                Ok(())
            }
            _ => Err(format!(
                "client {}: {event_type} among the initial events: {object}",
                self.name
            )),
        }
    }

    fn bookmark(&mut self, testbed: &mut Testbed, version: u64) -> CheckResult {
        let known = self.known.as_ref().ok_or("a bookmark before a list")?;
        let at = Revision {
            version,
            ..known.at
        };
        if !self.bookmarks
            || version < known.at.version
            || testbed.cluster.revision_of(version) != Some(at)
        {
            return Err(format!("client {}: bookmark {version}", self.name));
        }
        self.check(testbed, &known.view, at, "the bookmark")?;
        testbed.counts.bookmarks += 1;
        self.known.as_mut().expect("checked at the beginning").at = at;
        Ok(())
    }

    fn change(&mut self, testbed: &mut Testbed, event_type: &str, object: &Value) -> CheckResult {
        let stream = self.stream.as_ref().expect("the event is from a stream");
        let known = self.known.as_mut().ok_or("a change before a list")?;
        let key = key(object);
        let version = number(object)?;
        let violation = |what: &str| {
            let last = known.at;
            Err(format!(
                "client {}: {event_type} {key}@{version} {what} (last: {last:?})",
                self.name
            ))
        };
        let at = Revision {
            version,
            ..known.at
        };
        if testbed.cluster.revision_of(version) != Some(at) {
            return violation("has a version that is not in the client's history");
        }
        // The deletions that a relist implies all have one version: the version of the collection
        // when the upstream watch was lost. The client may have seen that version before.
        let is_deletion = event_type == "DELETED";
        if version < known.at.version || (version == known.at.version && !is_deletion) {
            return violation("is out of order");
        }
        let previous = known.view.get(&key);
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        let is_same = previous.is_some_and(|previous| uid(previous) == uid(object));
        let is_repeated = is_deletion && version == stream.start;
        let is_fitting = match event_type {
            "ADDED" => previous.is_none(),
            "MODIFIED" => is_same,
            "DELETED" => is_same || is_repeated,
            _ => return violation("has an unknown type"),
        };
        if stream.is_strict && !is_fitting {
            return violation("contradicts the objects of the client");
        }
        if is_deletion {
            let last = previous.map(|previous| without_version(previous));
            let is_last = last.is_none_or(|last| last == without_version(object));
            if stream.is_strict && !is_last {
                return violation("has another object than the client");
            }
            testbed.counts.implied_deletions += u64::from(version == known.at.version);
            known.view.remove(&key);
        } else {
            let stored = testbed.cluster.state(at).get(&key);
            if stored.map(|stored| &**stored) != Some(object)
                || !(self.subscription.selects)(object)
            {
                return violation("has an object that never existed or is not selected");
            }
            known.view.insert(key, Arc::new(object.clone()));
        }
        known.at = at;
        testbed.counts.changes += 1;
        Ok(())
    }
}

// === impl Stream ===

impl Stream {
    async fn next(&mut self) -> Read {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Read::Line(self.buffer.drain(..=end).collect());
            }
            self.was_abandoned |= self.last_taken.elapsed() >= WRITE_TIMEOUT;
            let frame = timeout(QUIET, self.body.frame()).await;
            self.last_taken = Instant::now();
            match frame {
                Ok(_) => self.last_frame = self.last_taken,
                // The connection is open, and nothing is left to take.
                Err(_) => self.was_abandoned = false,
            }
            match frame {
                Err(_) => return Read::Quiet,
                Ok(None) => return Read::End,
                Ok(Some(Err(error))) => return Read::Broken(error.to_string()),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(_) => return Read::Broken("trailers".to_owned()),
                },
            }
        }
    }
}
