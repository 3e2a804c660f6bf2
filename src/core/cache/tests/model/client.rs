//! A client of the model: it builds its view from the items of its watch, and compares the view
//! with etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::tests::model::etcd::{Etcd, View};
use crate::cache::{WatchItem, WatchStream};

pub(super) type CheckResult = Result<(), String>;

/// How far the cache is.
pub(super) struct Tip {
    pub(super) applied: ResourceVersion,
    /// True if the writer has queued all events.
    pub(super) is_queued: bool,
    /// True if the log has changes above `applied`.
    pub(super) is_open: bool,
}

pub(super) struct Client {
    pub(super) selection: Arc<Selection>,
    pub(super) stream: Option<WatchStream>,
    /// The objects that the client has received; `None` before its first list is complete.
    pub(super) view: Option<View>,
    /// The initial objects of a list that is not complete yet.
    initial_objects: View,
    /// The last resource version that the client has received.
    pub(super) seen: ResourceVersion,
    /// The resource version at which the client's stream started.
    pub(super) start: ResourceVersion,
    /// The cache's version when the client last had all changes of its current stream.
    caught_up: Option<ResourceVersion>,
    /// Set while the stream waits for a wake.
    waits: Option<Arc<Woken>>,
}

/// A waker that records whether it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl Client ===

impl Client {
    pub(super) fn new(selection: Selection) -> Self {
        Self {
            selection: Arc::new(selection),
            stream: None,
            view: None,
            initial_objects: View::new(),
            seen: ResourceVersion::ZERO,
            start: ResourceVersion::ZERO,
            caught_up: None,
            waits: None,
        }
    }

    /// Polls the stream, if there is one.
    fn poll(&mut self) -> Option<Poll<Option<WatchItem>>> {
        let stream = self.stream.as_mut()?;
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let polled = stream.poll_next(&mut Context::from_waker(&waker));
        self.waits = polled.is_pending().then_some(woken);
        Some(polled)
    }

    /// Checks that the stream has nothing to deliver if it waits and was not woken.
    pub(super) fn check_wake(&mut self, etcd: &Etcd) -> CheckResult {
        let is_unwoken = |woken: &Arc<Woken>| !woken.0.load(Ordering::Relaxed);
        if !self.waits.as_ref().is_some_and(is_unwoken) {
            return Ok(());
        }
        match self.poll() {
            Some(Poll::Ready(Some(WatchItem::Expired(_)))) => {
                self.check_expiry(etcd)?;
                self.forget();
                Ok(())
            }
            Some(Poll::Ready(item)) => Err(format!("a stream was not woken for {item:?}")),
            Some(Poll::Pending) | None => Ok(()),
        }
    }

    pub(super) fn forget(&mut self) {
        self.stream = None;
        self.waits = None;
        self.caught_up = None;
        self.view = None;
        self.initial_objects.clear();
    }

    pub(super) fn cut(&mut self) {
        self.stream = None;
        self.waits = None;
        self.caught_up = None;
        self.initial_objects.clear();
    }

    /// Takes one item and applies it to the view. Returns false if there is none.
    pub(super) fn step(&mut self, etcd: &Etcd) -> Result<bool, String> {
        let Some(polled) = self.poll() else {
            return Ok(false);
        };
        match polled {
            Poll::Pending => return Ok(false),
            Poll::Ready(None) => return Err("a stream ended although the cache is open".into()),
            Poll::Ready(Some(WatchItem::Expired(_))) => {
                self.check_expiry(etcd)?;
                self.forget();
            }
            Poll::Ready(Some(WatchItem::Initial(object))) => {
                let last = self.initial_objects.last_key_value();
                if last.is_some_and(|(last, _)| *last >= object.key) {
                    return Err(format!("initial object {} is out of order", object.key));
                }
                self.initial_objects.insert(object.key.clone(), object);
            }
            Poll::Ready(Some(WatchItem::InitialEnd(version))) => {
                self.view = Some(std::mem::take(&mut self.initial_objects));
                self.seen = version;
                self.check(etcd, version, "the initial objects")?;
            }
            Poll::Ready(Some(WatchItem::Change { event, verdict })) => {
                let object = event.object_for(verdict).clone();
                self.fold(verdict, object, event.resource_version)?;
            }
        }
        Ok(true)
    }

    pub(super) fn fold(
        &mut self,
        verdict: EventType,
        object: Arc<Object>,
        version: ResourceVersion,
    ) -> CheckResult {
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
            _ => {
                let before = view.insert(object.key.clone(), object);
                if before.is_some_and(|before| before.resource_version == version) {
                    return Err(format!("{verdict:?} at {version} was sent again"));
                }
            }
        }
        Ok(())
    }

    /// Applies all changes after the client's version to its view, as if it watched the API server.
    pub(super) fn follow(&mut self, etcd: &Etcd) {
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

    /// A client that has had all changes may expire only if a change since then concerns it.
    pub(super) fn check_expiry(&self, etcd: &Etcd) -> CheckResult {
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
        if etcd.changes_after(caught_up).any(concerns) {
            return Ok(());
        }
        Err(format!("expired after {caught_up} by others' changes"))
    }

    pub(super) fn check(&self, etcd: &Etcd, version: ResourceVersion, what: &str) -> CheckResult {
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

    /// Reads the rest of a watch of an earlier epoch, and checks that it expires.
    pub(super) fn end_expired(&mut self) -> CheckResult {
        while let Some(polled) = self.poll() {
            match polled {
                Poll::Ready(Some(WatchItem::Expired(_))) => self.forget(),
                Poll::Ready(Some(_)) => {}
                other => return Err(format!("an old watch was left open: {other:?}")),
            }
        }
        Ok(())
    }

    /// Takes up to `items` items. Returns true if the client then has all changes; checks its view.
    pub(super) fn take(&mut self, items: usize, etcd: &Etcd, tip: &Tip) -> Result<bool, String> {
        for _ in 0..items {
            if !self.step(etcd)? {
                // Until the writer has queued all events, the client may lack some of them.
                return Ok(tip.is_queued && self.check_tip(etcd, tip)?);
            }
        }
        Ok(false)
    }

    /// Checks the view and the bookmark of a stream that has nothing to deliver. Returns false
    /// without a check if the stream waits for a version that the cache has not reached.
    pub(super) fn check_tip(&mut self, etcd: &Etcd, tip: &Tip) -> Result<bool, String> {
        let applied = tip.applied;
        let Some(stream) = self.stream.as_ref().filter(|_| self.seen <= applied) else {
            return Ok(false);
        };
        self.check(etcd, applied, "the tip")?;
        if applied > self.start && !tip.is_open && stream.bookmark() != Some(applied) {
            return Err(format!("no bookmark at the tip, {applied}"));
        }
        self.caught_up = Some(applied);
        Ok(true)
    }
}
