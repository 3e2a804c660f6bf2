//! Tests of relists that yield: what others see meanwhile, and what is left when one is interrupted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::api::{EventType, Field, Object, ResourceVersion, Selection};
use crate::cache::tests::support::{
    config, everything, in_namespace, object, replace_in_steps, with_field, with_label,
};
use crate::cache::write::Pace;
use crate::cache::{
    Config, Reader, ReplaceOutcome, Snapshot, WatchFrom, WatchItem, WatchStream, Writer, cache,
};

/// Version of the first list, of the list that is interrupted, and of the list after it.
const BEFORE: ResourceVersion = ResourceVersion(20);
const LIST: ResourceVersion = ResourceVersion(40);
const LATER: ResourceVersion = ResourceVersion(50);

fn objects_before() -> Vec<Object> {
    let texts = ["a/v", "a/w", "a/x", "a/y", "b/x", "b/y"];
    let versions = 11..;
    let objects = texts.into_iter().zip(versions);
    let app = |version| if version % 2 == 0 { "web" } else { "db" };
    objects
        .map(|(text, version)| object(text, "u", version, app(version)))
        .collect()
}

/// Compared with [`objects_before`], `a/v` is unchanged, `a/w` leaves `app=web`, `a/x` enters it,
/// `a/y` is gone, `b/x` was recreated, `b/y` has changed and `c/x` is new.
fn objects_listed() -> Vec<Object> {
    vec![
        objects_before().swap_remove(0),
        object("a/w", "u", 31, "db"),
        object("a/x", "u", 35, "web"),
        object("b/x", "u2", 33, "db"),
        object("b/y", "u", 32, "web"),
        object("c/x", "u", 34, "web"),
    ]
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A client that reads its stream only when it was woken.
struct Client {
    selection: Arc<Selection>,
    stream: WatchStream,
    view: BTreeMap<String, ResourceVersion>,
    is_expired: bool,
    has_ended: bool,
    wakes: Arc<Wakes>,
}

impl Client {
    fn new(reader: &Reader, selection: Selection, from: WatchFrom) -> Self {
        let selection = Arc::new(selection);
        let stream = reader.watch(from, Arc::clone(&selection));
        let mut client = Self {
            view: view(&reader.snapshot().expect("ready"), &selection),
            selection,
            stream: stream.expect("a start that is served"),
            is_expired: false,
            has_ended: false,
            wakes: Arc::default(),
        };
        client.read();
        client
    }

    fn read_if_woken(&mut self) {
        if self.wakes.0.swap(0, Ordering::Relaxed) > 0 {
            self.read();
        }
    }

    fn read(&mut self) {
        let waker = Waker::from(Arc::clone(&self.wakes));
        while let Poll::Ready(item) = self.stream.poll_next(&mut Context::from_waker(&waker)) {
            match item {
                Some(WatchItem::Change { event, verdict }) => {
                    let key = event.object.key.as_str().to_owned();
                    match verdict {
                        EventType::Deleted => {
                            assert!(self.view.remove(&key).is_some(), "{key} was deleted again");
                        }
                        _ => drop(self.view.insert(key, event.resource_version)),
                    }
                }
                Some(WatchItem::Expired(_)) => self.is_expired = true,
                Some(item) => panic!("{item:?}"),
                None => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// Everything that was queued is delivered, and the client has the newest state, or it expired.
    fn check(&mut self, reader: &Reader, step: usize) {
        self.read_if_woken();
        if self.is_expired {
            return;
        }
        let snapshot = reader.snapshot().expect("ready");
        assert_eq!(
            self.view,
            view(&snapshot, &self.selection),
            "after step {step}"
        );
        assert_eq!(
            self.stream.bookmark(),
            reader.applied(),
            "after step {step}"
        );
    }
}

fn view(snapshot: &Snapshot, selection: &Selection) -> BTreeMap<String, ResourceVersion> {
    let objects = snapshot.list(selection, None);
    let entry = |object: Arc<Object>| (object.key.as_str().to_owned(), object.resource_version);
    objects.map(entry).collect()
}

/// A cache, clients of which one expires in the hole, and the relist's list after `steps` steps.
fn interrupted(
    config: Config,
    steps: usize,
) -> (Writer, Reader, Vec<Client>, Option<ReplaceOutcome>) {
    let (mut writer, reader) = cache(config);
    let mut relist = writer.relist();
    objects_before().into_iter().for_each(|o| relist.add(o));
    writer.replace(relist, BEFORE);
    let inside = WatchFrom::After(ResourceVersion(BEFORE.0 + 5));
    let clients = vec![
        Client::new(&reader, Selection::default(), WatchFrom::Tip),
        Client::new(&reader, with_label("web"), WatchFrom::Tip),
        Client::new(&reader, in_namespace("a"), WatchFrom::Tip),
        Client::new(&reader, in_namespace("none"), WatchFrom::Tip),
        Client::new(&reader, in_namespace("none"), inside),
    ];
    let mut relist = writer.relist();
    objects_listed().into_iter().for_each(|o| relist.add(o));
    let replaced = replace_in_steps(&mut writer, relist, LIST, steps);
    (writer, reader, clients, replaced)
}

/// The counters must be those of one of the two states, whatever was prepared and then dropped.
fn check_counters(reader: &Reader) {
    let stats = reader.stats();
    let replaced = reader.replaced_bytes().load(Ordering::Relaxed);
    match reader.applied() {
        Some(BEFORE) => {
            assert_eq!((stats.log_events, stats.log_bytes, replaced), (0, 0, 0));
            assert_eq!((stats.relists, stats.events), (1, 0));
        }
        Some(LIST) => {
            let of_kept = objects_before().swap_remove(0).size();
            let before: usize = objects_before().iter().map(Object::size).sum();
            assert_eq!(replaced, (before - of_kept) as u64);
            // Two deletions, one departure from `app=web`, one from `app=db`, and five changes.
            assert_eq!((stats.relists, stats.events), (2, 9));
            assert_eq!(stats.log_events, 9);
            assert!(stats.log_bytes > 9 * 200);
        }
        other => panic!("neither state: {other:?}"),
    }
    assert_eq!(
        reader.snapshot().map(|s| s.resource_version()),
        reader.applied()
    );
}

/// Runs `act` with a relist that was interrupted after each number of steps, until it is complete.
/// Returns the number of steps, and that after which readers saw the new content.
fn at_each_step(config: &Config, mut act: impl FnMut(usize, Writer, &Reader, Vec<Client>)) {
    let mut applied_after = None;
    for steps in 0.. {
        assert!(steps < 1000, "the relist does not end");
        let (writer, reader, clients, replaced) = interrupted(config.clone(), steps);
        if reader.applied() == Some(LIST) {
            applied_after.get_or_insert(steps);
        }
        act(steps, writer, &reader, clients);
        if replaced.is_some() {
            let applied_after = applied_after.expect("the list is applied");
            assert!(applied_after > 20, "yields while it prepares the update");
            assert!(
                steps - applied_after > 8,
                "yields while it queues the events"
            );
            return;
        }
    }
}

#[test]
fn an_interrupted_relist_leaves_one_of_the_two_states() {
    at_each_step(&config(), |steps, writer, reader, mut clients| {
        check_counters(reader);
        let has_unpublished = writer.has_unpublished();
        for client in &mut clients {
            client.read_if_woken();
            let bookmark = client.stream.bookmark();
            if has_unpublished {
                assert_eq!(bookmark, None, "events are missing after step {steps}");
            }
        }
    });
}

#[test]
fn after_an_interrupted_relist_the_next_one_delivers_everything() {
    at_each_step(&config(), |steps, mut writer, reader, mut clients| {
        clients.iter_mut().for_each(Client::read_if_woken);
        let mut relist = writer.relist();
        let mut objects = objects_listed();
        objects[1] = object("a/w", "u", 45, "web");
        objects.into_iter().for_each(|object| relist.add(object));
        let replaced = writer.replace(relist, LATER);
        assert!(matches!(replaced, ReplaceOutcome::Diffed { .. }));
        assert_eq!(reader.applied(), Some(LATER));
        clients
            .iter_mut()
            .for_each(|client| client.check(reader, steps));
        assert!(clients[4].is_expired, "inside the hole");
        assert!(clients[..4].iter().all(|client| !client.is_expired));
    });
}

#[test]
fn after_an_interrupted_relist_the_next_bookmark_wakes_all_streams() {
    at_each_step(&config(), |steps, mut writer, reader, mut clients| {
        let is_applied = reader.applied() == Some(LIST);
        writer.bookmark(LATER).unwrap();
        for client in &mut clients {
            client.read_if_woken();
        }
        assert_eq!(clients[4].is_expired, is_applied, "after step {steps}");
        if is_applied {
            clients
                .iter_mut()
                .for_each(|client| client.check(reader, steps));
        }
    });
}

#[test]
fn after_an_interrupted_relist_the_log_is_evicted_within_its_limit() {
    const LIMIT: usize = 1500;
    let config = Config {
        retention_bytes: Some(LIMIT),
        ..config()
    };
    let mut served = 0;
    at_each_step(&config, |steps, mut writer, reader, mut clients| {
        clients.iter_mut().for_each(Client::read_if_woken);
        writer.bookmark(LATER).unwrap();
        assert!(reader.stats().log_bytes <= LIMIT, "after step {steps}");
        let all = &mut clients[0];
        all.read();
        if reader.stats().log_events > 0 && !all.is_expired {
            all.check(reader, steps);
            served += 1;
        }
    });
    assert!(served > 0, "no stream was fast enough");
}

#[test]
fn a_writer_dropped_in_a_relist_ends_the_streams() {
    at_each_step(&config(), |steps, writer, reader, mut clients| {
        let applied = reader.applied();
        drop(writer);
        for (index, client) in clients.iter_mut().enumerate() {
            client.read_if_woken();
            assert!(client.has_ended, "client {index} after step {steps}");
            let expected = match applied {
                Some(LIST) => objects_listed(),
                _ => objects_before(),
            };
            let selected = expected.iter().filter(|o| client.selection.matches(o));
            let selected = selected.map(|o| (o.key.as_str().to_owned(), o.resource_version));
            if !client.is_expired {
                assert_eq!(client.view, selected.collect(), "after step {steps}");
            }
        }
    });
}

/// Objects with versions from `first` on.
fn many(count: u64, first: u64) -> impl Iterator<Item = Object> {
    (0..count).map(move |n| object(&format!("a/{n:05}"), "u", first + n, "web"))
}

#[test]
fn a_writer_dropped_with_many_events_left_does_not_queue_them_all() {
    const OBJECTS: u64 = 4_000;
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    many(OBJECTS, 1).for_each(|object| relist.add(object));
    writer.replace(relist, ResourceVersion(OBJECTS));
    let groups = (0..40).map(|number| {
        let selection = with_field(Field::Value(0), false, &format!("no-{number}"));
        reader.watch(WatchFrom::Tip, Arc::new(selection)).unwrap()
    });
    let streams: Vec<_> = groups.collect();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut relist = writer.relist();
    many(OBJECTS, OBJECTS + 1).for_each(|object| relist.add(object));
    let mut steps = 0;
    let list = ResourceVersion(2 * OBJECTS);
    let mut pace = Pace::slowest();
    {
        let mut replaced = pin!(writer.replace_at(relist, list, &mut pace));
        while reader.applied() != Some(list) {
            let polled = replaced
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            steps += 1;
        }
    }
    assert!(steps as u64 > 4 * OBJECTS);
    drop(writer);
    let mut versions = Vec::new();
    loop {
        match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(WatchItem::Change { event, .. })) => {
                versions.push(event.resource_version.0);
            }
            Poll::Ready(None) => break,
            Poll::Pending => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(stream.bookmark(), None);
    }
    let first = OBJECTS + 1;
    let delivered = versions.len() as u64;
    assert!((1..OBJECTS).contains(&delivered), "{delivered} events");
    assert!(versions.into_iter().eq(first..first + delivered));
    drop(streams);
}

#[tokio::test]
async fn other_tasks_run_while_a_long_list_is_applied() {
    const OBJECTS: u64 = 5_000;
    let (mut writer, reader) = cache(config());
    let turns = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&turns);
    let other = tokio::task::LocalSet::new();
    let task = other.spawn_local(async move {
        loop {
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let groups = (0..20).map(|number| {
        let selection = with_field(Field::Value(0), false, &format!("no-{number}"));
        Arc::new(selection)
    });
    let groups: Vec<_> = groups.collect();
    other
        .run_until(async {
            let mut streams = Vec::new();
            // A first list, a list in which everything differs, an empty one, and a new epoch.
            for (version, count, least_turns) in [
                (10_000, OBJECTS, 30),
                (20_000, OBJECTS, 70),
                (30_000, 0, 70),
                (5_000, OBJECTS, 30),
            ] {
                let mut relist = writer.relist();
                many(count, version - count).for_each(|object| relist.add(object));
                let before = turns.load(Ordering::Relaxed);
                writer
                    .replace_cooperatively(relist, ResourceVersion(version))
                    .await;
                let turns = turns.load(Ordering::Relaxed) - before;
                assert!(turns >= least_turns, "{turns} turns of others at {version}");
                let watch = |group: &Arc<Selection>| {
                    reader.watch(WatchFrom::Tip, Arc::clone(group)).unwrap()
                };
                streams = groups.iter().map(watch).collect();
            }
            drop(streams);
        })
        .await;
    task.abort();
}
