//! A world of the model: an etcd, a cache that follows it, and clients of the cache.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::advance;

use crate::api::{EventType, Field, LabelSelector, Object, ResourceVersion, Selection};
use crate::cache::tests::model::client::{CheckResult, Client, Tip};
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
    /// True if several changes may have one version.
    shares_versions: bool,
    /// How many of the changes after the applied version the upstream watch has delivered.
    open_fed: usize,
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
            shares_versions: false,
            open_fed: 0,
            observers: Observers::default(),
            served: 0,
        }
    }

    /// Makes the next relists end after these numbers of steps.
    pub(super) fn interrupt_relists(&mut self, after: impl Iterator<Item = usize> + 'static) {
        self.interruptions = Some(Box::new(after));
    }

    /// Lets several changes have one version from now on. Call it before the world runs.
    pub(super) fn share_versions(&mut self) {
        self.shares_versions = true;
        self.config.shares_versions = true;
        (self.writer, self.reader) = cache(self.config.clone());
        self.writer
            .replace(self.writer.relist(), ResourceVersion(BASE));
    }

    fn applied(&self) -> ResourceVersion {
        self.writer.applied().expect("the first list is applied")
    }

    /// The newest version that the upstream watch or a list has delivered.
    fn newest(&self) -> ResourceVersion {
        ResourceVersion(self.applied().0 + u64::from(self.is_open()))
    }

    /// Returns true if the log has changes of a version that reads don't show yet.
    fn is_open(&self) -> bool {
        let at_tip = self.reader.follow().map(|(_, cursor)| cursor.is_at_tip());
        at_tip == Some(false)
    }

    /// Returns true if a client that has all events so far may lack changes of the version that it
    /// has seen last. If it is cut then, it may lose them, as at the API server.
    fn is_within_version(&self, seen: ResourceVersion) -> bool {
        let is_complete = || {
            let changes = self.etcd.changes_after(self.applied());
            let open = changes.take_while(|(_, object)| object.resource_version == seen);
            seen <= self.applied() || open.count() == self.open_fed
        };
        self.etcd.has_several_changes(seen) && (self.writer.has_unpublished() || !is_complete())
    }

    pub(super) fn run(&mut self, operations: Vec<Op>) -> CheckResult {
        for op in operations {
            self.step(op)?;
            let snapshot = self.reader.snapshot().ok_or("not ready")?;
            self.check_snapshot(&snapshot)?;
            let newest = self.newest();
            self.observers
                .check_age(&self.config, &self.reader, newest)?;
        }
        self.writer.hold_back(0);
        self.feed(usize::MAX, false)?;
        self.wake()?;
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
            Op::Delete { key } if self.shares_versions => {
                let names = [KEYS[key], KEYS[(key + 1) % KEYS.len()]];
                self.etcd.delete_together(names);
            }
            Op::Delete { key } => self.etcd.delete(KEYS[key]),
            Op::Recreate { key, app } => {
                self.etcd.delete(KEYS[key]);
                self.etcd.write(KEYS[key], APPS[app]);
            }
            Op::Purge { namespace } => {
                let of_namespace = |name: &&str| key(name).namespace() == namespace;
                let names = KEYS.into_iter().filter(of_namespace);
                if self.shares_versions {
                    self.etcd.delete_together(names);
                } else {
                    names.for_each(|name| self.etcd.delete(name));
                }
            }
            Op::Tick => self.etcd.commit(Vec::new()),
            Op::Feed { events } => self.feed(events, false)?,
            Op::FeedLossy { events } => self.feed(events, true)?,
            Op::Wake => self.wake()?,
            // The upstream watch is resumed, and repeats the changes of the open version.
            Op::Repeat { .. } if self.shares_versions => self.open_fed = 0,
            Op::Repeat { key } => {
                let stored = self.etcd.state(self.applied()).get(KEYS[key]).cloned();
                if let Some(stored) = stored {
                    let repeated = Object::clone(&stored);
                    let applied = self.writer.apply(EventType::Added, repeated, None);
                    applied.map_err(|e| e.to_string())?;
                }
            }
            Op::UpstreamBookmark => {
                let mut changes = self.etcd.changes_after(self.applied());
                let next = changes.nth(self.open_fed);
                drop(changes);
                let next = next.map(|(_, object)| object.resource_version.0 - 1);
                let reached = ResourceVersion(next.unwrap_or(self.etcd.revision()));
                self.writer.bookmark(reached).map_err(|e| e.to_string())?;
                if reached >= self.newest() {
                    self.open_fed = 0;
                    self.observers.check_eviction(&self.config, &self.reader)?;
                    self.observers.check_frames(&self.reader)?;
                }
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
                let complete = Some(self.applied()).filter(|_| !self.is_open());
                self.observers.read_log(events, &self.etcd, complete)?;
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

    /// Wakes the streams, and checks that this was enough. After an interrupted relist, the next
    /// change wakes the others.
    fn wake(&mut self) -> CheckResult {
        self.writer.wake();
        if self.interruptions.is_some() {
            return Ok(());
        }
        let mut clients = self.clients.iter_mut();
        clients.try_for_each(|client| client.check_wake(&self.etcd))
    }

    fn feed(&mut self, events: usize, is_lossy: bool) -> CheckResult {
        let applied = self.applied();
        let changes = self.etcd.changes_after(applied);
        let mut changes = changes.skip(self.open_fed).take(events).peekable();
        let mut last = (self.open_fed > 0).then_some(ResourceVersion(applied.0 + 1));
        while let Some((event_type, object)) = changes.next() {
            let next = changes.peek().filter(|(_, next)| next.key == object.key);
            if is_lossy && event_type == EventType::Deleted && next.is_some() {
                continue;
            }
            let (object, frame) = framed(&object);
            let version = object.resource_version;
            self.observers.received(version, frame.clone());
            let applied = self
                .writer
                .apply_without_wake(event_type, object, Some(frame));
            applied.map_err(|e| e.to_string())?;
            if self.shares_versions {
                let fed = self.open_fed * usize::from(last == Some(version));
                (self.open_fed, last) = (fed + 1, Some(version));
            }
        }
        Ok(())
    }

    fn relist(&mut self, behind: u64, as_watch_list: bool) -> CheckResult {
        let (applied, newest) = (self.applied(), self.newest());
        let list = ResourceVersion(self.etcd.revision().saturating_sub(behind).max(newest.0));
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
                None if self.applied() == applied => return Ok(()),
                None => {
                    self.open_fed = 0;
                    return Ok(());
                }
            },
        };
        self.open_fed = 0;
        match replaced {
            ReplaceOutcome::Diffed { .. } => Ok(()),
            other => Err(format!("a relist at {list} on {applied}: {other:?}")),
        }
    }

    /// Restores a backup of etcd. If the cache has a later version, it relists in a new epoch.
    fn restore(&mut self, revisions: u64) -> CheckResult {
        let revision = self.etcd.revision().saturating_sub(revisions).max(BASE);
        self.etcd.restore(revision);
        let (newest, revision) = (self.newest(), ResourceVersion(revision));
        // Reset clients whose versions the cache cannot recognize as versions of the old history.
        for client in &mut self.clients {
            if client.stream.is_none() || client.seen > revision.max(newest) {
                client.forget();
            }
        }
        if revision >= newest {
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
        self.open_fed = 0;
        self.observers.epoch_began();
        // All open watches must expire. Items that they deliver before that are not checked.
        for client in &mut self.clients {
            client.end_expired()?;
        }
        Ok(())
    }

    fn client(&mut self, index: usize, action: ClientOp) -> CheckResult {
        let (applied, revision) = (self.applied(), self.etcd.revision());
        let tip = Tip {
            applied,
            is_queued: !self.writer.has_unpublished(),
            is_open: self.is_open(),
        };
        let seen = self.clients[index].seen;
        let is_within = self.is_within_version(seen);
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
                let has_all = client.take(items, &self.etcd, &tip)?;
                self.served += usize::from(has_all);
            }
            ClientOp::Cut if is_within => client.forget(),
            ClientOp::Cut => {
                if self.etcd.has_several_changes(seen) {
                    client.take(1000, &self.etcd, &tip)?;
                }
                client.cut();
            }
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
                if self.etcd.has_several_changes(client.seen) {
                    client.forget();
                }
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
