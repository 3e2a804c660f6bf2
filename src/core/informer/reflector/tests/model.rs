//! A random model: after any sequence of upstream faults, the cache and its clients have the
//! objects that upstream has.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Notify;

use super::support::{
    Events, answer, bookmark_event, cache_config, change, object_of_uid, refused, status,
};
use crate::api::{EventType, ListPage, Object, ResourceVersion, Selection, WatchEvent};
use crate::cache;
use crate::cache::{Reader, WatchFrom, WatchItem, WatchStream};
use crate::informer::{Reflector, ReflectorConfig, RelistHandle, Signals, relist_channel};
use crate::upstream::{Error, ListCall, ListerWatcher, ResumePoint, WatchCall};

/// A step of a test case. Each call to the fake upstream, and each poll of its streams, takes the
/// next step.
#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Delete(u8),
    /// Upstream forgets its history: older versions get 410.
    Compact,
    Bookmark,
    RelistRequest,
    /// The client reads everything that its watch has.
    ClientReads,
    Pass(u16),
    /// The call, or the stream that is polled, fails with this status code.
    Status(u16),
    Break,
    Cut,
    End,
    /// The call or stream stays pending for ever.
    Silence,
    /// Upstream restores the state this many revisions ago. Later writes have other contents under
    /// the same resource versions as the lost ones.
    Restore(u64),
}

type Objects = BTreeMap<String, Object>;

/// A writable API server with one resource, and a client that watches the cache.
struct World {
    steps: VecDeque<Step>,
    revision: u64,
    compacted: u64,
    /// The number of restores. Streams that started before the last restore stay silent.
    history: u32,
    /// The value of `history` when the last list began.
    listed_history: u32,
    states: BTreeMap<u64, Objects>,
    events: Vec<(u64, EventType, Object)>,
    pages: HashMap<String, (u32, u64, Vec<Object>)>,
    relist: RelistHandle,
    client: Client,
}

struct Client {
    reader: Reader,
    watch: Option<WatchStream>,
    view: BTreeMap<String, Bytes>,
}

#[derive(Clone)]
struct FakeUpstream {
    world: Arc<Mutex<World>>,
    all_steps_done: Arc<Notify>,
}

/// An open watch of the fake upstream.
struct Watcher {
    upstream: FakeUpstream,
    history: u32,
    position: u64,
    initial: VecDeque<WatchEvent>,
    has_failed: bool,
}

// === impl World ===

impl World {
    fn new(steps: Vec<Step>, reader: Reader, relist: RelistHandle) -> Self {
        Self {
            steps: steps.into(),
            revision: 10,
            compacted: 10,
            history: 0,
            listed_history: 0,
            states: BTreeMap::from([(10, Objects::new())]),
            events: Vec::new(),
            pages: HashMap::new(),
            relist,
            client: Client {
                reader,
                watch: None,
                view: BTreeMap::new(),
            },
        }
    }

    fn objects(&self) -> &Objects {
        &self.states[&self.revision]
    }

    /// Takes the next step. Returns it if the calling request or stream must perform it.
    fn take_step(&mut self) -> Option<Step> {
        match self.steps.pop_front()? {
            Step::Write(n) => self.write(n),
            Step::Delete(n) => self.delete(n),
            Step::Compact => self.compacted = self.revision,
            Step::RelistRequest => self.relist.request(),
            Step::ClientReads => self.client.read(),
            Step::Restore(age) => self.restore(age),
            step => return Some(step),
        }
        None
    }

    fn write(&mut self, n: u8) {
        let name = format!("object-{n}");
        let existing = self.objects().get(&name).cloned();
        let event_type = match existing {
            None => EventType::Added,
            Some(_) => EventType::Modified,
        };
        let uid = match existing {
            None => format!("{name}-{}", self.revision + 1),
            Some(existing) => existing.uid().to_owned(),
        };
        let mut new = object_of_uid(&name, self.revision + 1, &uid);
        new.body = Bytes::from(format!("{name}@{} in {}", self.revision + 1, self.history));
        let mut objects = self.objects().clone();
        objects.insert(name, new.clone());
        self.commit(event_type, new, objects);
    }

    fn delete(&mut self, n: u8) {
        let mut objects = self.objects().clone();
        if let Some(mut object) = objects.remove(&format!("object-{n}")) {
            object.resource_version = ResourceVersion(self.revision + 1);
            self.commit(EventType::Deleted, object, objects);
        }
    }

    /// Writes nothing until a list has begun after the last restore: if the restored history
    /// reached the old version before any list, the reflector could not notice the restore.
    fn commit(&mut self, event_type: EventType, object: Object, objects: Objects) {
        if self.listed_history == self.history {
            self.revision += 1;
            self.states.insert(self.revision, objects);
            self.events.push((self.revision, event_type, object));
        }
    }

    fn restore(&mut self, age: u64) {
        self.revision = self.revision.saturating_sub(age).max(10);
        self.compacted = self.compacted.min(self.revision);
        self.history += 1;
        let revision = self.revision;
        self.states.retain(|rv, _| *rv <= revision);
        self.events.retain(|(rv, ..)| *rv <= revision);
    }

    fn page(&mut self, request: ListCall) -> Result<ListPage, Error> {
        let (history, rv, mut items) = match &request.continue_token {
            Some(token) => self.pages.remove(token).expect("a known token"),
            None => {
                self.listed_history = self.history;
                let items = self.objects().values().cloned().collect();
                (self.history, self.revision, items)
            }
        };
        if history != self.history || rv < self.compacted {
            return Err(answer(410));
        }
        let limit = match request.limit {
            0 => usize::MAX,
            limit => limit as usize,
        };
        let rest = items.split_off(items.len().min(limit));
        let continue_token = (!rest.is_empty()).then(|| {
            let token = format!("{}", self.pages.len());
            self.pages.insert(token.clone(), (history, rv, rest));
            token
        });
        Ok(ListPage {
            resource_version: ResourceVersion(rv),
            continue_token,
            items,
        })
    }
}

impl Client {
    fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let Some(watch) = &mut self.watch else {
                self.view.clear();
                let all = Arc::new(Selection::default());
                if !self.reader.is_ready() {
                    return;
                }
                self.watch = self.reader.watch(WatchFrom::Snapshot, all).ok();
                continue;
            };
            match watch.poll_next(&mut context) {
                Poll::Pending => return,
                Poll::Ready(None | Some(WatchItem::Expired(_))) => self.watch = None,
                Poll::Ready(Some(WatchItem::InitialEnd(_))) => {}
                Poll::Ready(Some(WatchItem::Initial(object))) => self.put(&object),
                Poll::Ready(Some(WatchItem::Change { event, verdict })) => match verdict {
                    EventType::Deleted => {
                        let removed = self.view.remove(event.object.key.name());
                        assert!(removed.is_some(), "deleted twice: {}", event.object.key);
                    }
                    _ => self.put(&event.object),
                },
            }
        }
    }

    fn put(&mut self, object: &Object) {
        let name = object.key.name().to_owned();
        self.view.insert(name, object.body.clone());
    }
}

// === impl FakeUpstream ===

impl FakeUpstream {
    async fn call<T>(
        &self,
        answer_with: impl FnOnce(&mut World) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let step = self.world.lock().take_step();
        match step {
            Some(Step::Status(code)) => return Err(answer(code)),
            Some(Step::Break) => return Err(refused()),
            Some(Step::Cut) => return Err(Error::Decode("cut".into())),
            Some(Step::Silence) => pending().await,
            Some(Step::Pass(seconds)) => {
                tokio::time::sleep(Duration::from_secs(seconds.into())).await;
            }
            _ => {}
        }
        answer_with(&mut self.world.lock())
    }
}

impl ListerWatcher for FakeUpstream {
    type Events = Events;

    async fn list(&self, request: ListCall) -> Result<ListPage, Error> {
        self.call(|world| world.page(request)).await
    }

    async fn watch(&self, request: WatchCall) -> Result<Events, Error> {
        let watcher = self
            .call(|world| Ok(self.watcher(world, request.start)))
            .await?;
        Ok(Box::pin(stream::unfold(watcher, Watcher::next)))
    }

    async fn barrier(&self) -> Result<ResourceVersion, Error> {
        self.call(|world| Ok(ResourceVersion(world.revision))).await
    }
}

impl FakeUpstream {
    fn watcher(&self, world: &mut World, start: ResumePoint) -> Watcher {
        let (position, initial) = match start {
            ResumePoint::InitialEvents => {
                world.listed_history = world.history;
                let objects = world.objects().values().cloned();
                let added = objects.map(|object| change(EventType::Added, object));
                let end = bookmark_event(world.revision, true);
                (world.revision, added.chain([end]).collect())
            }
            ResumePoint::After(rv) if rv.0 < world.compacted => {
                (rv.0, VecDeque::from([WatchEvent::Error(status(410))]))
            }
            ResumePoint::After(rv) => (rv.0, VecDeque::new()),
        };
        Watcher {
            upstream: self.clone(),
            history: world.history,
            position,
            initial,
            has_failed: false,
        }
    }
}

impl Watcher {
    async fn next(mut self) -> Option<(Result<WatchEvent, Error>, Self)> {
        if self.has_failed {
            return None;
        }
        loop {
            let (step, are_steps_done) = {
                let mut world = self.upstream.world.lock();
                let are_steps_done = world.steps.is_empty();
                (world.take_step(), are_steps_done)
            };
            self.has_failed = matches!(step, Some(Step::Status(_) | Step::Break | Step::Cut));
            match step {
                Some(Step::Status(code)) => {
                    return Some((Ok(WatchEvent::Error(status(code))), self));
                }
                Some(Step::Break) => return Some((Err(refused()), self)),
                Some(Step::Cut) => return Some((Err(Error::Decode("cut".into())), self)),
                Some(Step::End) => return None,
                Some(Step::Silence) => pending().await,
                Some(Step::Pass(seconds)) => {
                    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
                }
                Some(Step::Bookmark) if self.initial.is_empty() && self.is_at_tip() => {
                    return Some((Ok(bookmark_event(self.position, false)), self));
                }
                _ => {}
            }
            if let Some(event) = self.deliver() {
                return Some((Ok(event), self));
            }
            if self.is_lost() {
                pending::<()>().await;
            }
            if are_steps_done {
                self.upstream.all_steps_done.notify_one();
                pending::<()>().await;
            }
        }
    }

    /// True if the watch gets no events, because etcd was restored after the watch began, or
    /// because the watch began at a version above etcd's current revision.
    fn is_lost(&self) -> bool {
        let world = self.upstream.world.lock();
        self.history != world.history || self.position > world.revision
    }

    fn is_at_tip(&self) -> bool {
        !self.is_lost() && self.position == self.upstream.world.lock().revision
    }

    fn deliver(&mut self) -> Option<WatchEvent> {
        if self.is_lost() {
            return None;
        }
        if let Some(event) = self.initial.pop_front() {
            self.has_failed = matches!(event, WatchEvent::Error(_));
            return Some(event);
        }
        let world = self.upstream.world.lock();
        let mut events = world.events.iter();
        let (rv, event_type, object) = events.find(|(rv, ..)| *rv > self.position)?;
        self.position = *rv;
        Some(change(*event_type, object.clone()))
    }
}

// === the property ===

fn step() -> impl Strategy<Value = Step> {
    let code = prop::sample::select(vec![401, 410, 410, 422, 429, 500, 504]);
    prop_oneof![
        12 => (0_u8..6).prop_map(Step::Write),
        4 => (0_u8..6).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        2 => Just(Step::Bookmark),
        1 => Just(Step::RelistRequest),
        4 => Just(Step::ClientReads),
        3 => (0_u16..200).prop_map(Step::Pass),
        3 => code.prop_map(Step::Status),
        2 => Just(Step::Break),
        1 => Just(Step::Cut),
        2 => Just(Step::End),
        1 => Just(Step::Silence),
        1 => (0_u64..12).prop_map(Step::Restore),
    ]
}

async fn play(steps: Vec<Step>, config: ReflectorConfig) {
    let (writer, reader) = cache::cache(cache_config());
    let (relist, relists) = relist_channel();
    let upstream = FakeUpstream {
        world: Arc::new(Mutex::new(World::new(steps, reader.clone(), relist))),
        all_steps_done: Arc::default(),
    };
    let signals = Signals {
        stop: Box::pin(tokio::time::sleep(Duration::from_secs(1_000_000))),
        relists,
    };
    let reflector = Reflector::new(upstream.clone(), writer, config, signals);
    let mut run = std::pin::pin!(reflector.run());
    tokio::select! {
        ended = &mut run => panic!("the reflector ended before the last step: {ended:?}"),
        () = upstream.all_steps_done.notified() => {}
    }
    let mut world = upstream.world.lock();
    world.client.read();
    let bodies = |object: &Object| (object.key.name().to_owned(), object.body.clone());
    let expected: BTreeMap<_, _> = world.objects().values().map(bodies).collect();
    let snapshot = reader.snapshot().expect("ready");
    let all = Selection::default();
    let cached: BTreeMap<_, _> = snapshot.list(&all, None).map(|o| bodies(&o)).collect();
    assert_eq!(cached, expected, "the cache");
    assert_eq!(world.client.view, expected, "a client of the cache");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn after_any_faults_the_cache_and_its_clients_equal_upstream(
        steps in prop::collection::vec(step(), 0..120),
        watch_list: bool,
        relist_on_early_end: bool,
        seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(play(steps, ReflectorConfig {
            watch_list,
            page_size: 2,
            relist_on_early_end,
            // Silent calls between two 401 may take longer than the default.
            unauthorized_patience: Duration::MAX,
            seed: Some(seed),
            ..ReflectorConfig::default()
        }));
    }
}
