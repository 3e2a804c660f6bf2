//! A random model: an etcd with its whole history, an upstream feed that is cut, and clients that
//! fold what they are told. Nobody may end with a view that its resource version doesn't have.
//!
//! Each rule that looks odd is also switched off once, to see that the model notices.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use proptest::collection::vec;
use proptest::prelude::Just;
use proptest::prelude::Strategy;
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::test_runner::Config as RunnerConfig;
use proptest::test_runner::TestCaseError;
use proptest::test_runner::TestRng;
use proptest::test_runner::TestRunner;

use crate::api::EventType;
use crate::api::Field;
use crate::api::LabelSelector;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::Config;
use crate::cache::EpochCause;
use crate::cache::Reader;
use crate::cache::Replaced;
use crate::cache::Snapshot;
use crate::cache::WatchFrom;
use crate::cache::WatchItem;
use crate::cache::WatchStream;
use crate::cache::Writer;
use crate::cache::cache;
use crate::cache::tests::support::config;
use crate::cache::tests::support::in_namespace;
use crate::cache::tests::support::key;
use crate::cache::tests::support::object;
use crate::cache::tests::support::poll;
use crate::cache::tests::support::with_field;
use crate::cache::tests::support::with_label;
use crate::mutation;
use crate::mutation::Mutation;

const KEYS: [&str; 6] = ["a/x", "a/y", "a/z", "a-b/x", "b/x", "b/z"];
const APPS: [&str; 3] = ["web", "db", "job"];
const CLIENTS: usize = 5;
/// Bytes of history; an event of these objects counts 400 to 600.
const RETENTION: [Option<usize>; 4] = [None, Some(1300), Some(2500), Some(6500)];
/// The revision before the first change.
const BASE: u64 = 10;

#[derive(Clone, Debug)]
enum Op {
    Write {
        key: usize,
        app: usize,
    },
    Delete {
        key: usize,
    },
    Recreate {
        key: usize,
        app: usize,
    },
    /// Deletes all of a namespace, an object a revision.
    Purge {
        namespace: &'static str,
    },
    /// Another resource changes.
    Tick,
    Feed {
        events: usize,
    },
    /// As `Feed`, but deletions right before a recreation are lost on the way.
    FeedLossy {
        events: usize,
    },
    /// The upstream tells an object again that is stored already.
    Repeat {
        key: usize,
    },
    UpstreamBookmark,
    /// The watch is lost; a list that is `behind` revisions old comes in.
    Relist {
        behind: u64,
        as_watch_list: bool,
    },
    Restore {
        revisions: u64,
    },
    ForgetHistory,
    Pin,
    SnapshotAt {
        behind: u64,
    },
    Client {
        client: usize,
        does: ClientOp,
    },
}

#[derive(Clone, Debug)]
enum ClientOp {
    ListAndWatch,
    /// Comes from the API server or another replica with a state `behind` revisions old.
    Arrive {
        behind: u64,
    },
    /// Starts from the cache's snapshot, proven to be the state some revisions later.
    WatchProven {
        later: u64,
    },
    Poll {
        items: usize,
    },
    Cut,
    Resume,
    /// Takes some items, and goes on at the API server from wherever it is then.
    ResumeElsewhere {
        items: usize,
    },
    TakeBookmark,
}

type View = BTreeMap<ObjectKey, Arc<Object>>;
type Checked = Result<(), String>;

/// The truth: the state at every revision.
struct Etcd {
    states: Vec<View>,
    /// The change that made each state.
    changes: Vec<Option<(EventType, Object)>>,
    uids: u64,
}

struct Client {
    selection: Arc<Selection>,
    stream: Option<WatchStream>,
    /// What it believes; `None` before its first list is complete.
    view: Option<View>,
    arriving: View,
    seen: ResourceVersion,
    /// Where its stream started.
    start: ResourceVersion,
    /// What was applied when its stream last had everything.
    caught_up: Option<ResourceVersion>,
}

struct World {
    etcd: Etcd,
    writer: Writer,
    reader: Reader,
    clients: Vec<Client>,
    /// How often a client had all there was, and its view was right.
    served: usize,
}

fn operations() -> impl Strategy<Value = Vec<Op>> {
    let (key, app) = (0..KEYS.len(), 0..APPS.len());
    let client_op = prop_oneof![
        2 => Just(ClientOp::ListAndWatch),
        3 => (0..8u64).prop_map(|behind| ClientOp::Arrive { behind }),
        1 => (0..6u64).prop_map(|later| ClientOp::WatchProven { later }),
        5 => (1..5usize).prop_map(|items| ClientOp::Poll { items }),
        2 => Just(ClientOp::Poll { items: 50 }),
        3 => Just(ClientOp::Cut),
        4 => Just(ClientOp::Resume),
        3 => (0..4usize).prop_map(|items| ClientOp::ResumeElsewhere { items }),
        2 => Just(ClientOp::TakeBookmark),
    ];
    let op = prop_oneof![
        5 => (key.clone(), app.clone()).prop_map(|(key, app)| Op::Write { key, app }),
        2 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key, app).prop_map(|(key, app)| Op::Recreate { key, app }),
        1 => select(vec!["a", "b"]).prop_map(|namespace| Op::Purge { namespace }),
        1 => Just(Op::Tick),
        3 => (1..6usize).prop_map(|events| Op::Feed { events }),
        1 => (1..6usize).prop_map(|events| Op::FeedLossy { events }),
        1 => (0..KEYS.len()).prop_map(|key| Op::Repeat { key }),
        1 => Just(Op::UpstreamBookmark),
        3 => (0..4u64, select(vec![false, true]))
            .prop_map(|(behind, as_watch_list)| Op::Relist { behind, as_watch_list }),
        1 => (1..12u64).prop_map(|revisions| Op::Restore { revisions }),
        1 => Just(Op::ForgetHistory),
        1 => Just(Op::Pin),
        1 => (0..8u64).prop_map(|behind| Op::SnapshotAt { behind }),
        18 => (0..CLIENTS, client_op).prop_map(|(client, does)| Op::Client { client, does }),
    ];
    vec(op, 1..120)
}

fn labelled(selector: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(selector).expect("a selector"),
        ..Selection::default()
    }
}

fn selections() -> Vec<Selection> {
    let both = Selection {
        namespace: Some("a".to_owned()),
        ..with_label("web")
    };
    vec![
        Selection::default(),
        in_namespace("a"),
        with_label("web"),
        with_field(Field::Value(0), false, "web"),
        with_field(Field::Value(0), true, "db"),
        with_field(Field::Name, true, "x"),
        with_field(Field::Namespace, true, "b"),
        Selection {
            namespace: Some("a".to_owned()),
            ..with_field(Field::Name, true, "z")
        },
        labelled("app in (db,web)"),
        labelled("app notin (db,web)"),
        both,
    ]
}

// === impl Etcd ===

impl Etcd {
    fn new() -> Self {
        let empty = || (0..=BASE).map(|_| View::new()).collect();
        Self {
            states: empty(),
            changes: (0..=BASE).map(|_| None).collect(),
            uids: 0,
        }
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn state(&self, version: ResourceVersion) -> &View {
        &self.states[usize::try_from(version.0).expect("small numbers")]
    }

    fn now(&self) -> &View {
        self.state(ResourceVersion(self.revision()))
    }

    fn commit(&mut self, change: Option<(EventType, Object)>) {
        let mut next = self.now().clone();
        match &change {
            Some((EventType::Deleted, object)) => drop(next.remove(&object.key)),
            Some((_, object)) => drop(next.insert(object.key.clone(), Arc::new(object.clone()))),
            None => {}
        }
        self.states.push(next);
        self.changes.push(change);
    }

    fn write(&mut self, name: &str, app: &str) {
        let (event_type, uid) = match self.now().get(name) {
            Some(stored) => (EventType::Modified, stored.uid().to_owned()),
            None => {
                self.uids += 1;
                (EventType::Added, format!("uid-{}", self.uids))
            }
        };
        let written = object(name, &uid, self.revision() + 1, app);
        self.commit(Some((event_type, written)));
    }

    fn delete(&mut self, name: &str) {
        let Some(stored) = self.now().get(name) else {
            return;
        };
        let mut last = Object::clone(stored);
        last.resource_version = ResourceVersion(self.revision() + 1);
        self.commit(Some((EventType::Deleted, last)));
    }

    /// Changes above `after`, oldest first.
    fn changes_after(&self, after: ResourceVersion) -> impl Iterator<Item = (EventType, Object)> {
        let skipped = usize::try_from(after.0).expect("small numbers") + 1;
        self.changes.iter().skip(skipped).flatten().cloned()
    }

    fn selected(&self, selection: &Selection, version: ResourceVersion) -> View {
        let selected = |(_, object): &(&ObjectKey, &Arc<Object>)| selection.matches(object);
        let state = self.state(version).iter().filter(selected);
        state
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }
}

// === impl Client ===

impl Client {
    fn forget(&mut self) {
        self.stream = None;
        self.caught_up = None;
        self.view = None;
        self.arriving.clear();
    }

    fn cut(&mut self) {
        self.stream = None;
        self.caught_up = None;
        self.arriving.clear();
    }

    /// Takes one item; false when there is none.
    fn step(&mut self, etcd: &Etcd) -> Result<bool, String> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        match poll(stream) {
            Poll::Pending => return Ok(false),
            Poll::Ready(None) => return Err("a stream ended though the writer lives".into()),
            Poll::Ready(Some(WatchItem::Expired(_))) => {
                self.check_expiry(etcd)?;
                self.forget();
            }
            Poll::Ready(Some(WatchItem::Initial(object))) => {
                let last = self.arriving.last_key_value();
                if last.is_some_and(|(last, _)| *last >= object.key) {
                    return Err(format!("initial object {} is out of order", object.key));
                }
                self.arriving.insert(object.key.clone(), object);
            }
            Poll::Ready(Some(WatchItem::InitialEnd(version))) => {
                self.view = Some(std::mem::take(&mut self.arriving));
                self.seen = version;
                self.check(etcd, version, "the initial objects")?;
            }
            Poll::Ready(Some(WatchItem::Change { event, verdict })) => {
                let object = event.told_object(verdict).clone();
                self.fold(verdict, object, event.resource_version)?;
            }
        }
        Ok(true)
    }

    fn fold(
        &mut self,
        verdict: EventType,
        object: Arc<Object>,
        version: ResourceVersion,
    ) -> Checked {
        if version < self.seen {
            return Err(format!("{verdict:?} at {version} after {}", self.seen));
        }
        self.seen = version;
        let view = self.view.as_mut().ok_or("a change before the list's end")?;
        match verdict {
            EventType::Deleted => drop(view.remove(&object.key)),
            _ if object.resource_version != version || !self.selection.matches(&object) => {
                return Err(format!("{verdict:?} at {version} shows {object:?}"));
            }
            _ => drop(view.insert(object.key.clone(), object)),
        }
        Ok(())
    }

    /// Folds what the API server tells after the version that it has.
    fn follow(&mut self, etcd: &Etcd) {
        let Some(view) = &mut self.view else {
            return;
        };
        for (_, object) in etcd.changes_after(self.seen) {
            let (key, version) = (object.key, object.resource_version);
            let stored = |version| etcd.state(version).get(&key);
            let selected = |object: &&Arc<Object>| self.selection.matches(object);
            let before = stored(ResourceVersion(version.0 - 1)).filter(selected);
            match (before, stored(version).filter(selected)) {
                (_, Some(after)) => drop(view.insert(key, after.clone())),
                (Some(_), None) => drop(view.remove(&key)),
                (None, None) => {}
            }
        }
        self.seen = ResourceVersion(etcd.revision());
    }

    /// Who had everything can only have fallen off what concerns it.
    fn check_expiry(&self, etcd: &Etcd) -> Checked {
        let Some(caught_up) = self.caught_up else {
            return Ok(());
        };
        let is_selected_at = |key: &ObjectKey, version: u64| {
            let object = etcd.state(ResourceVersion(version)).get(key);
            object.is_some_and(|object| self.selection.matches(object))
        };
        let concerns = |(_, object): (EventType, Object)| {
            let version = object.resource_version.0;
            is_selected_at(&object.key, version) || is_selected_at(&object.key, version - 1)
        };
        match etcd.changes_after(caught_up).any(concerns) {
            true => Ok(()),
            false => Err(format!("expired after {caught_up} by others' changes")),
        }
    }

    fn check(&self, etcd: &Etcd, version: ResourceVersion, what: &str) -> Checked {
        let expected = etcd.selected(&self.selection, version);
        match &self.view {
            Some(view) if *view != expected => Err(format!(
                "{what} at {version}: has {:?}, not {:?}",
                view.keys().collect::<Vec<_>>(),
                expected.keys().collect::<Vec<_>>(),
            )),
            _ => Ok(()),
        }
    }
}

// === impl World ===

impl World {
    fn new(retention_bytes: Option<usize>, choice: [usize; CLIENTS]) -> Self {
        let (mut writer, reader) = cache(Config {
            retention_bytes,
            ..config()
        });
        writer.replace(writer.relist(), ResourceVersion(BASE));
        let client = |choice: usize| Client {
            selection: Arc::new(selections()[choice].clone()),
            stream: None,
            view: None,
            arriving: View::new(),
            seen: ResourceVersion::ZERO,
            start: ResourceVersion::ZERO,
            caught_up: None,
        };
        Self {
            etcd: Etcd::new(),
            writer,
            reader,
            clients: choice.into_iter().map(client).collect(),
            served: 0,
        }
    }

    fn applied(&self) -> ResourceVersion {
        self.writer.applied().expect("the first list is in")
    }

    fn run(&mut self, operations: Vec<Op>) -> Checked {
        for op in operations {
            self.step(op)?;
            let snapshot = self.reader.snapshot().ok_or("not ready")?;
            self.check_snapshot(&snapshot)?;
        }
        self.feed(usize::MAX, false)?;
        for client in 0..CLIENTS {
            self.client(client, ClientOp::Resume)?;
            self.client(client, ClientOp::Poll { items: 1000 })?;
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> Checked {
        match op {
            Op::Write { key, app } => self.etcd.write(KEYS[key], APPS[app]),
            Op::Delete { key } => self.etcd.delete(KEYS[key]),
            Op::Recreate { key, app } => {
                self.etcd.delete(KEYS[key]);
                self.etcd.write(KEYS[key], APPS[app]);
            }
            Op::Purge { namespace } => {
                let of_namespace = |name: &&str| key(name).namespace() == namespace;
                let names = KEYS.into_iter().filter(of_namespace);
                names.for_each(|name| self.etcd.delete(name));
            }
            Op::Tick => self.etcd.commit(None),
            Op::Feed { events } => self.feed(events, false)?,
            Op::FeedLossy { events } => self.feed(events, true)?,
            Op::Repeat { key } => {
                let stored = self.etcd.state(self.applied()).get(KEYS[key]).cloned();
                if let Some(stored) = stored {
                    let repeated = Object::clone(&stored);
                    let applied = self.writer.apply(EventType::Added, repeated, None);
                    applied.map_err(|e| e.to_string())?;
                }
            }
            Op::UpstreamBookmark => {
                let next = self.etcd.changes_after(self.applied()).next();
                let next = next.map(|(_, object)| object.resource_version.0 - 1);
                let reached = ResourceVersion(next.unwrap_or(self.etcd.revision()));
                self.writer.bookmark(reached).map_err(|e| e.to_string())?;
            }
            Op::Relist {
                behind,
                as_watch_list,
            } => self.relist(behind, as_watch_list)?,
            Op::Restore { revisions } => self.restore(revisions)?,
            Op::ForgetHistory => self.writer.forget_history(),
            Op::Pin => self.reader.pin(&self.reader.snapshot().ok_or("not ready")?),
            Op::SnapshotAt { behind } => {
                let version = self.etcd.revision().saturating_sub(behind);
                if let Some(snapshot) = self.reader.snapshot_at(ResourceVersion(version)) {
                    self.check_snapshot(&snapshot)?;
                }
            }
            Op::Client { client, does } => self.client(client, does)?,
        }
        Ok(())
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Checked {
        let version = snapshot.resource_version();
        for selection in selections() {
            let listed = snapshot.list(&selection, None);
            let expected = self.etcd.selected(&selection, version);
            if !listed.eq(expected.into_values()) {
                return Err(format!("the snapshot at {version} differs"));
            }
        }
        Ok(())
    }

    fn feed(&mut self, events: usize, is_lossy: bool) -> Checked {
        let changes = self.etcd.changes_after(self.applied()).take(events);
        let mut changes = changes.peekable();
        while let Some((event_type, object)) = changes.next() {
            let next = changes.peek().filter(|(_, next)| next.key == object.key);
            if is_lossy && event_type == EventType::Deleted && next.is_some() {
                continue;
            }
            let applied = self.writer.apply(event_type, object, None);
            applied.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn relist(&mut self, behind: u64, as_watch_list: bool) -> Checked {
        let applied = self.applied();
        let list = ResourceVersion(self.etcd.revision().saturating_sub(behind).max(applied.0));
        let mut relist = self.writer.relist();
        // A watch-list may show an older state first, and then the changes up to its end.
        let shown = match as_watch_list {
            true => ResourceVersion(list.0.saturating_sub(3).max(BASE)),
            false => list,
        };
        for object in self.etcd.state(shown).values().rev() {
            relist.add(Object::clone(object));
        }
        for (event_type, object) in self.etcd.changes_after(shown) {
            match event_type {
                _ if object.resource_version > list => break,
                EventType::Deleted => relist.remove(&object.key),
                EventType::Added | EventType::Modified => relist.add(object),
            }
        }
        match self.writer.replace(relist, list) {
            Replaced::Diffed { .. } => Ok(()),
            other => Err(format!("a relist at {list} on {applied}: {other:?}")),
        }
    }

    /// An old backup of etcd is put in place, and its history goes on from there.
    fn restore(&mut self, revisions: u64) -> Checked {
        let revision = self.etcd.revision().saturating_sub(revisions).max(BASE);
        let length = usize::try_from(revision).expect("small numbers") + 1;
        self.etcd.states.truncate(length);
        self.etcd.changes.truncate(length);
        let (applied, revision) = (self.applied(), ResourceVersion(revision));
        // No proxy can tell these clients that what they hold from elsewhere is history.
        for client in &mut self.clients {
            if client.stream.is_none() || client.seen > revision.max(applied) {
                client.forget();
            }
        }
        if revision >= applied {
            let lost = |client: &&mut Client| client.seen > revision;
            self.clients
                .iter_mut()
                .filter(lost)
                .for_each(Client::forget);
            return Ok(());
        }
        let mut relist = self.writer.relist();
        for object in self.etcd.now().values() {
            relist.add(Object::clone(object));
        }
        let replaced = self.writer.replace(relist, revision);
        if replaced != Replaced::NewEpoch(EpochCause::WentBack) {
            return Err(format!(
                "a restored etcd was taken for a relist: {replaced:?}"
            ));
        }
        // Whoever watches must be told; what it folds until then is checked no more.
        for client in &mut self.clients {
            while let Some(stream) = &mut client.stream {
                match poll(stream) {
                    Poll::Ready(Some(WatchItem::Expired(_))) => client.forget(),
                    Poll::Ready(Some(_)) => {}
                    other => return Err(format!("an old watch was left open: {other:?}")),
                }
            }
        }
        Ok(())
    }

    fn client(&mut self, index: usize, does: ClientOp) -> Checked {
        let (applied, revision) = (self.applied(), self.etcd.revision());
        let client = &mut self.clients[index];
        match does {
            ClientOp::ListAndWatch => {
                client.forget();
                self.open(index, WatchFrom::Snapshot);
            }
            ClientOp::Arrive { behind } => {
                client.forget();
                client.seen = ResourceVersion(revision.saturating_sub(behind).max(BASE));
                client.view = Some(self.etcd.selected(&client.selection, client.seen));
                let from = WatchFrom::After(client.seen);
                self.open(index, from);
            }
            ClientOp::WatchProven { later } => {
                client.forget();
                let proven = ResourceVersion((applied.0 + later).min(revision));
                if self.etcd.state(proven) == self.etcd.state(applied) {
                    let snapshot = self.reader.snapshot().ok_or("not ready")?;
                    let snapshot = self.reader.proven_at(&snapshot, proven);
                    let selection = client.selection.clone();
                    client.stream = self.reader.watch_snapshot(snapshot, selection).ok();
                    client.seen = proven;
                    client.start = proven;
                }
            }
            ClientOp::Poll { items } => {
                for _ in 0..items {
                    if client.step(&self.etcd)? {
                        continue;
                    }
                    // It has all there is, unless what it waits for is yet to come.
                    if let Some(stream) = &client.stream
                        && client.seen <= applied
                    {
                        client.check(&self.etcd, applied, "the tip")?;
                        if applied > client.start && stream.bookmark() != Some(applied) {
                            return Err(format!("no bookmark at the tip, {applied}"));
                        }
                        client.caught_up = Some(applied);
                        self.served += 1;
                    }
                    break;
                }
            }
            ClientOp::Cut => client.cut(),
            ClientOp::Resume => {
                if client.view.is_some() && client.stream.is_none() {
                    let from = WatchFrom::After(client.seen);
                    self.open(index, from);
                }
            }
            ClientOp::ResumeElsewhere { items } => {
                for _ in 0..items {
                    client.step(&self.etcd)?;
                }
                client.cut();
                client.follow(&self.etcd);
                client.check(
                    &self.etcd,
                    ResourceVersion(revision),
                    "the API server's tip",
                )?;
            }
            ClientOp::TakeBookmark => {
                let bookmark = client.stream.as_ref().and_then(WatchStream::bookmark);
                if let Some(version) = bookmark {
                    client.check(&self.etcd, version, "the bookmark")?;
                    client.seen = version;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize, from: WatchFrom) {
        let applied = self.applied();
        let client = &mut self.clients[index];
        client.start = match from {
            WatchFrom::After(start) => start,
            WatchFrom::Snapshot | WatchFrom::Tip => applied,
        };
        match self.reader.watch(from, client.selection.clone()) {
            Ok(stream) => client.stream = Some(stream),
            Err(_) => client.forget(),
        }
    }
}

// === the tests ===

/// Runs `cases` worlds and returns how often a client had all there was.
fn run_model(
    cases: u32,
    max_shrink_iters: u32,
    retention: &[Option<usize>],
) -> Result<usize, String> {
    let settings = RunnerConfig {
        cases,
        max_shrink_iters,
        failure_persistence: None,
        ..RunnerConfig::default()
    };
    let rng = TestRng::deterministic_rng(settings.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(settings, rng);
    let retention = select(retention.to_vec());
    let choice = [(); CLIENTS].map(|()| 0..selections().len());
    let served = Cell::new(0);
    let outcome = runner.run(&(retention, choice, operations()), |input| {
        let (retention, choice, operations) = input;
        let mut world = World::new(retention, choice);
        let outcome = world.run(operations);
        served.set(served.get() + world.served);
        outcome.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(served.get()),
        Err(error) => Err(error.to_string()),
    }
}

/// `PROPTEST_CASES` sets another number of cases.
#[test]
fn every_client_ends_with_the_true_view_or_is_told_expired() {
    let cases = RunnerConfig::default().cases;
    match run_model(cases, 10_000, &RETENTION) {
        Ok(served) => assert!(
            served > 2 * cases as usize,
            "views were checked only {served} times in {cases} cases"
        ),
        Err(error) => panic!("{error}"),
    }
}

fn noticed(rule_off: Mutation, retention: Option<usize>) -> String {
    let outcome = mutation::with(rule_off, || run_model(1000, 0, &[retention]));
    outcome.expect_err("the model should notice")
}

fn assert_needed(rule_off: Mutation, retention: Option<usize>) {
    let noticed = noticed(rule_off, retention);
    assert!(noticed.contains(": has ["), "not a wrong view: {noticed}");
}

#[test]
fn model_needs_starts_inside_a_hole_to_expire() {
    assert_needed(Mutation::HoleServed, None);
}

#[test]
fn model_needs_the_block_repeated_at_its_version() {
    assert_needed(Mutation::BlockNotRepeated, None);
}

#[test]
fn model_needs_the_block_at_the_version_before() {
    assert_needed(Mutation::BlockAtList, None);
}

#[test]
fn model_needs_the_object_before() {
    assert_needed(Mutation::NewObjectOnly, None);
}

#[test]
fn model_needs_waiting_streams_to_notice_holes() {
    assert_needed(Mutation::AheadUnchecked, None);
}

#[test]
fn model_needs_a_torn_block_to_expire() {
    assert_needed(Mutation::HoleEvictedAsEvents, Some(1300));
}

#[test]
fn model_needs_groups_found_by_the_object_before() {
    assert_needed(Mutation::OldObjectNotIndexed, None);
}

#[test]
fn model_needs_the_log_read_to_the_tip_before_joining() {
    assert_needed(Mutation::JoinedBeforeTip, None);
}

#[test]
fn model_needs_to_know_how_far_back_a_queue_reaches() {
    assert_needed(Mutation::GroupSinceEver, None);
}

#[test]
fn model_needs_streams_to_fall_off_their_queue() {
    assert_needed(Mutation::FallUnnoticed, Some(1300));
}

#[test]
fn model_needs_queues_to_end_with_their_epoch() {
    let noticed = noticed(Mutation::QueueKeptAtEpoch, None);
    assert!(noticed.contains("an old watch was left open"), "{noticed}");
}

#[test]
fn model_needs_others_changes_to_expire_nobody() {
    let noticed = noticed(Mutation::QuietFallsOff, Some(1300));
    assert!(noticed.contains("by others' changes"), "{noticed}");
}
