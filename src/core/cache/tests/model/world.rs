//! A world of the model: an etcd, a cache that follows it, and clients of the cache.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::advance;

use crate::api::{EventType, Field, LabelSelector, Object, ResourceVersion, Selection};
use crate::cache::tests::model::client::{CheckResult, Client};
use crate::cache::tests::model::etcd::{BASE, Etcd};
use crate::cache::tests::model::observers::{Observers, framed};
use crate::cache::tests::model::operation::{APPS, CLIENTS, ClientOp, KEYS, Op};
use crate::cache::tests::support::{
    config, in_namespace, key, replace_in_steps, with_field, with_label,
};
use crate::cache::{
    Config, EpochCause, GroupLimits, Reader, ReplaceOutcome, Snapshot, WatchFrom, WatchStream,
    Writer, cache,
};

type Interruptions = Box<dyn Iterator<Item = usize>>;

pub(super) struct World {
    /// Its time is paused.
    runtime: Rc<Runtime>,
    etcd: Etcd,
    config: Config,
    writer: Writer,
    reader: Reader,
    clients: Vec<Client>,
    /// The number of steps after which each relist is interrupted, unless it ends before.
    interruptions: Option<Interruptions>,
    observers: Observers,
    /// How often a client had all changes and its view was correct.
    pub(super) served: usize,
}

// === impl World ===

impl World {
    /// A world in the time of `runtime`, which the caller has entered.
    pub(super) fn new(
        runtime: Rc<Runtime>,
        (retention_bytes, (queue_bytes, idle)): (Option<usize>, (usize, usize)),
        choice: [usize; CLIENTS],
    ) -> Self {
        let groups = GroupLimits {
            queue_bytes,
            idle,
            ..GroupLimits::default()
        };
        let config = Config {
            retention_bytes,
            groups,
            ..config()
        };
        let (mut writer, reader) = cache(config.clone());
        writer.replace(writer.relist(), ResourceVersion(BASE));
        let client = |choice: usize| Client::new(selections()[choice].clone());
        Self {
            runtime,
            etcd: Etcd::new(),
            config,
            writer,
            reader,
            clients: choice.into_iter().map(client).collect(),
            interruptions: None,
            observers: Observers::default(),
            served: 0,
        }
    }

    /// Makes the next relists end after these numbers of steps.
    pub(super) fn interrupt_relists(&mut self, after: impl Iterator<Item = usize> + 'static) {
        self.interruptions = Some(Box::new(after));
    }

    fn applied(&self) -> ResourceVersion {
        self.writer.applied().expect("the first list is applied")
    }

    pub(super) fn run(&mut self, operations: Vec<Op>) -> CheckResult {
        for op in operations {
            self.step(op)?;
            let snapshot = self.reader.snapshot().ok_or("not ready")?;
            self.check_snapshot(&snapshot)?;
            self.observers.check_age(&self.config, &self.reader)?;
        }
        self.writer.hold_back(0);
        self.feed(usize::MAX, false)?;
        self.serve_all()?;
        // A bookmark drops the events that are too old.
        self.step(Op::UpstreamBookmark)?;
        self.step(Op::ReadLog { events: usize::MAX })?;
        self.serve_all()?;
        self.observers.check_kept()
    }

    /// Lets all clients take what there is for them.
    fn serve_all(&mut self) -> CheckResult {
        for client in 0..CLIENTS {
            self.client(client, ClientOp::Resume)?;
            self.client(client, ClientOp::Poll { items: 1000 })?;
        }
        Ok(())
    }

    fn step(&mut self, op: Op) -> CheckResult {
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
                self.observers.check_eviction(&self.config, &self.reader)?;
                self.observers.check_frames(&self.reader)?;
            }
            Op::HoldBack { events } => self.writer.hold_back(events),
            Op::Relist {
                behind,
                as_watch_list,
            } => self.relist(behind, as_watch_list)?,
            Op::Restore { revisions } => self.restore(revisions)?,
            Op::ForgetHistory => {
                self.writer.forget_history();
                self.observers.log_forgotten();
            }
            Op::Pass { seconds } => {
                let time = Duration::from_secs(seconds);
                self.runtime.block_on(advance(time));
            }
            Op::Keep => {
                let snapshot = self.reader.snapshot().ok_or("not ready")?;
                self.observers.keep(snapshot)?;
            }
            Op::Replay { kept, behind } => {
                let to = ResourceVersion(self.applied().0.saturating_sub(behind));
                self.observers.replay(kept, to, &self.etcd, &self.reader)?;
            }
            Op::FollowLog => self.observers.follow(&self.reader),
            Op::ReadLog { events } => {
                let applied = self.applied();
                self.observers.read_log(events, &self.etcd, applied)?;
            }
            Op::Pin => self.reader.pin(&self.reader.snapshot().ok_or("not ready")?),
            Op::SnapshotAt { behind } => {
                let version = self.etcd.revision().saturating_sub(behind);
                let everything = Arc::default();
                if let Some(snapshot) = self
                    .reader
                    .snapshot_at(ResourceVersion(version), &everything)
                {
                    self.check_snapshot(&snapshot)?;
                }
            }
            Op::Client { client, action } => self.client(client, action)?,
        }
        Ok(())
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> CheckResult {
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

    fn feed(&mut self, events: usize, is_lossy: bool) -> CheckResult {
        let changes = self.etcd.changes_after(self.applied()).take(events);
        let mut changes = changes.peekable();
        while let Some((event_type, object)) = changes.next() {
            let next = changes.peek().filter(|(_, next)| next.key == object.key);
            if is_lossy && event_type == EventType::Deleted && next.is_some() {
                continue;
            }
            let (object, frame) = framed(&object);
            let version = object.resource_version;
            self.observers.received(version, frame.clone());
            let applied = self.writer.apply(event_type, object, Some(frame));
            applied.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn relist(&mut self, behind: u64, as_watch_list: bool) -> CheckResult {
        let applied = self.applied();
        let list = ResourceVersion(self.etcd.revision().saturating_sub(behind).max(applied.0));
        let mut relist = self.writer.relist();
        // A watch-list may begin with an older state, followed by the changes up to its version.
        let shown = if as_watch_list {
            ResourceVersion(list.0.saturating_sub(3).max(BASE))
        } else {
            list
        };
        for object in self.etcd.state(shown).values().rev() {
            relist.add(Object::clone(object));
        }
        for (event_type, object) in self.etcd.changes_after(shown) {
            match event_type {
                _ if object.resource_version > list => break,
                EventType::Deleted => relist.remove(&object.key),
                EventType::Added | EventType::Modified => {
                    let (object, frame) = framed(&object);
                    let version = object.resource_version;
                    relist.add_from_frame(object, &frame);
                    self.observers.received(version, frame);
                }
            }
        }
        let replaced = match self.interruptions.as_mut().and_then(Iterator::next) {
            None => self.writer.replace(relist, list),
            Some(steps) => match replace_in_steps(&mut self.writer, relist, list, steps) {
                Some(replaced) => replaced,
                None => return Ok(()),
            },
        };
        match replaced {
            ReplaceOutcome::Diffed { .. } => Ok(()),
            other => Err(format!("a relist at {list} on {applied}: {other:?}")),
        }
    }

    /// Restores a backup of etcd. If the cache has a later version, it relists in a new epoch.
    fn restore(&mut self, revisions: u64) -> CheckResult {
        let revision = self.etcd.revision().saturating_sub(revisions).max(BASE);
        self.etcd.restore(revision);
        let (applied, revision) = (self.applied(), ResourceVersion(revision));
        // Reset clients whose versions the cache cannot recognize as versions of the old history.
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
        if replaced != ReplaceOutcome::NewEpoch(EpochCause::WentBack) {
            return Err(format!(
                "a restored etcd was taken for a relist: {replaced:?}"
            ));
        }
        self.observers.epoch_began();
        // All open watches must expire. Items that they deliver before that are not checked.
        for client in &mut self.clients {
            client.end_expired()?;
        }
        Ok(())
    }

    fn client(&mut self, index: usize, action: ClientOp) -> CheckResult {
        let (applied, revision) = (self.applied(), self.etcd.revision());
        let is_queued = !self.writer.has_unpublished();
        let client = &mut self.clients[index];
        match action {
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
                let proven = ResourceVersion((applied.0 + later).min(revision));
                self.watch_proven(index, proven)?;
            }
            ClientOp::Poll { items } => {
                let has_all = client.take(items, &self.etcd, applied, is_queued)?;
                self.served += usize::from(has_all);
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

    fn watch_proven(&mut self, index: usize, proven: ResourceVersion) -> CheckResult {
        let applied = self.applied();
        let client = &mut self.clients[index];
        client.forget();
        if self.etcd.state(proven) == self.etcd.state(applied) {
            let snapshot = self.reader.snapshot().ok_or("not ready")?;
            let selection = client.selection.clone();
            let snapshot = self.reader.proven_at(&snapshot, proven, &selection);
            client.stream = self.reader.watch_snapshot(snapshot, selection).ok();
            client.seen = proven;
            client.start = proven;
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

fn labelled(selector: &str) -> Selection {
    Selection {
        labels: LabelSelector::parse(selector).expect("a selector"),
        ..Selection::default()
    }
}

pub(super) fn selections() -> Vec<Selection> {
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
