//! What the model observes of the cache besides its clients' watches: snapshots that are kept, a
//! view that follows the event log, the frames that stored objects are slices of, and the age of
//! events.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion};
use crate::cache::tests::model::client::CheckResult;
use crate::cache::tests::model::etcd::{Etcd, View};
use crate::cache::tests::model::world::selections;
use crate::cache::{Config, Event, LogCursor, Reader, Snapshot};

/// At most this many snapshots are kept.
const MAX_KEPT: usize = 4;
/// Bytes of a frame besides the object, so that a copy of the object takes less memory.
const FRAME_BYTES: usize = 200;

/// A frame with `object`, and the object as a slice of it.
pub(super) fn framed(object: &Object) -> (Object, Bytes) {
    let frame = Bytes::from([&[b' '; FRAME_BYTES], &object.body[..]].concat());
    let mut object = object.clone();
    object.body = frame.slice(FRAME_BYTES..);
    (object, frame)
}

#[derive(Default)]
pub(super) struct Observers {
    kept: Vec<KeptSnapshot>,
    /// A cursor on the event log, and the view that it leads to.
    follower: Option<(LogCursor, View)>,
    /// The frames that the cache has received, with the versions of their objects.
    frames: Vec<(ResourceVersion, Bytes)>,
    /// The cache after each operation, since it last lost its log.
    moments: Vec<Moment>,
}

struct KeptSnapshot {
    snapshot: Snapshot,
    /// The lists of all selections when the snapshot was taken.
    lists: Vec<Vec<Arc<Object>>>,
}

struct Moment {
    at: Instant,
    /// The newest version that the cache has received.
    newest: ResourceVersion,
    /// The number of all events so far.
    events: u64,
}

// === impl KeptSnapshot ===

impl KeptSnapshot {
    fn new(snapshot: Snapshot) -> Self {
        let lists = lists(&snapshot);
        Self { snapshot, lists }
    }

    /// Checks that each list still has the same objects, and not only equal ones.
    fn check(&self) -> CheckResult {
        let same = |(list, before): (&Vec<Arc<Object>>, &Vec<Arc<Object>>)| {
            let same = |(object, before)| Arc::ptr_eq(object, before);
            list.len() == before.len() && list.iter().zip(before).all(same)
        };
        let version = self.snapshot.resource_version();
        if lists(&self.snapshot).iter().zip(&self.lists).all(same) {
            Ok(())
        } else {
            Err(format!("the kept snapshot at {version} has changed"))
        }
    }

    fn view(&self) -> View {
        let objects = self.snapshot.candidates(&selections()[0], None);
        objects
            .map(|object| (object.key.clone(), Arc::clone(object)))
            .collect()
    }
}

fn lists(snapshot: &Snapshot) -> Vec<Vec<Arc<Object>>> {
    let selections = selections();
    let list = |selection| snapshot.list(selection, None).collect();
    selections.iter().map(list).collect()
}

/// Applies `event` to `view`, which has all objects.
fn fold(view: &mut View, event: &Event) {
    let object = &event.object;
    match event.event_type {
        EventType::Deleted => drop(view.remove(&object.key)),
        EventType::Added | EventType::Modified => {
            drop(view.insert(object.key.clone(), Arc::clone(object)));
        }
    }
}

fn check_view(view: &View, etcd: &Etcd, version: ResourceVersion, what: &str) -> CheckResult {
    let expected = etcd.state(version);
    if view == expected {
        Ok(())
    } else {
        Err(format!(
            "{what} at {version}: has {:?}, not {:?}",
            view.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
        ))
    }
}

// === impl Observers ===

impl Observers {
    /// Keeps `snapshot` in place of the oldest one, which is checked.
    pub(super) fn keep(&mut self, snapshot: Snapshot) -> CheckResult {
        if self.kept.len() == MAX_KEPT
            && let Some(oldest) = self.kept.pop()
        {
            oldest.check()?;
        }
        self.kept.insert(0, KeptSnapshot::new(snapshot));
        Ok(())
    }

    /// A kept snapshot that had changed would stay changed, so one check at its end is enough.
    pub(super) fn check_kept(&self) -> CheckResult {
        self.kept.iter().try_for_each(KeptSnapshot::check)
    }

    /// The changes since a kept snapshot must lead to the state at `to`, or not be in the log any
    /// more.
    pub(super) fn replay(
        &self,
        number: usize,
        to: ResourceVersion,
        etcd: &Etcd,
        reader: &Reader,
    ) -> CheckResult {
        let Some(kept) = self.kept.get(number) else {
            return Ok(());
        };
        let from = kept.snapshot.resource_version();
        let changes = reader.changes_between(kept.snapshot.epoch(), from, from.max(to));
        let Ok(mut changes) = changes else {
            return Ok(());
        };
        let mut view = kept.view();
        while let Ok(Some(event)) = changes.next_applied() {
            fold(&mut view, &event);
        }
        check_view(&view, etcd, from.max(to), "the log")
    }

    pub(super) fn follow(&mut self, reader: &Reader) {
        self.follower = reader
            .follow()
            .map(|(snapshot, cursor)| (cursor, KeptSnapshot::new(snapshot).view()));
    }

    /// Takes up to `events` changes from the log. With all of them, the view must be the state at
    /// `complete`, also if the groups' queues lack some. `None` if the newest version is open.
    pub(super) fn read_log(
        &mut self,
        events: usize,
        etcd: &Etcd,
        complete: Option<ResourceVersion>,
    ) -> CheckResult {
        let Some((cursor, view)) = &mut self.follower else {
            return Ok(());
        };
        for _ in 0..events {
            match cursor.next_applied() {
                Ok(Some(event)) => fold(view, &event),
                Ok(None) if !cursor.is_at_tip() => return Err("the log ends too early".to_owned()),
                Ok(None) => {
                    let check =
                        |version| check_view(view, etcd, version, "the follower of the log");
                    return complete.map_or(Ok(()), check);
                }
                Err(_) => {
                    self.follower = None;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(super) fn received(&mut self, version: ResourceVersion, frame: Bytes) {
        self.frames.push((version, frame));
    }

    /// Checks that the cache keeps no frame of an event that the log has dropped. The writer copies
    /// the bodies of so few objects at the next bookmark at the latest.
    pub(super) fn check_frames(&self, reader: &Reader) -> CheckResult {
        let start = reader.log_start();
        let snapshot = reader.snapshot().ok_or("not ready")?;
        for object in snapshot.list(&selections()[0], None) {
            let version = object.resource_version;
            let is_kept = |(of, frame): &(ResourceVersion, Bytes)| {
                *of == version && frame.as_ptr_range().contains(&object.body.as_ptr())
            };
            if version < start && self.frames.iter().any(is_kept) {
                return Err(format!("{object:?} keeps a frame that the log has dropped"));
            }
        }
        Ok(())
    }

    /// The log has dropped all events, of any age.
    pub(super) fn log_forgotten(&mut self) {
        self.moments.clear();
    }

    /// A new epoch has begun, whose versions may be those of the objects before.
    pub(super) fn epoch_began(&mut self) {
        self.moments.clear();
        self.frames.clear();
    }

    /// Records this moment, and checks that the log has all events of the retention age, unless
    /// they are too many bytes.
    pub(super) fn check_age(
        &mut self,
        config: &Config,
        reader: &Reader,
        newest: ResourceVersion,
    ) -> CheckResult {
        let (stats, start) = (reader.stats(), reader.log_start());
        let moment = Moment {
            at: Instant::now(),
            newest,
            events: stats.events,
        };
        let oldest = self.aged(config, moment.at).or(self.moments.first());
        let oldest = oldest.map(|oldest| oldest.newest);
        self.moments.push(moment);
        match oldest {
            Some(oldest) if config.retention_bytes.is_none() && start > oldest => Err(format!(
                "the log begins at {start}, not at {oldest} or before"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the log has no older events, after a change that makes it drop all of them.
    pub(super) fn check_eviction(&self, config: &Config, reader: &Reader) -> CheckResult {
        let stats = reader.stats();
        let retained = stats.log_events as u64;
        let aged = self.aged(config, Instant::now());
        match aged.map(|aged| stats.events - aged.events) {
            Some(young) if retained > young => {
                Err(format!("{retained} events are retained, not {young}"))
            }
            _ => Ok(()),
        }
    }

    /// The last moment whose events are too old at `now`.
    fn aged(&self, config: &Config, now: Instant) -> Option<&Moment> {
        let is_aged = |moment: &&Moment| now.duration_since(moment.at) >= config.retention_age;
        self.moments.iter().take_while(is_aged).last()
    }
}
