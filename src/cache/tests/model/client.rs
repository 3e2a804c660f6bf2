//! A client that folds what it is told, and checks that it is true.

use std::sync::Arc;
use std::task::Poll;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::WatchItem;
use crate::cache::WatchStream;
use crate::cache::tests::model::etcd::Etcd;
use crate::cache::tests::model::etcd::View;
use crate::cache::tests::support::poll;

pub(super) type CheckResult = Result<(), String>;

pub(super) struct Client {
    pub(super) selection: Arc<Selection>,
    pub(super) stream: Option<WatchStream>,
    /// What it believes; `None` before its first list is complete.
    pub(super) view: Option<View>,
    arriving: View,
    pub(super) seen: ResourceVersion,
    /// Where its stream started.
    pub(super) start: ResourceVersion,
    /// What was applied when its stream last had everything.
    caught_up: Option<ResourceVersion>,
}

// === impl Client ===

impl Client {
    pub(super) fn new(selection: Selection) -> Self {
        Self {
            selection: Arc::new(selection),
            stream: None,
            view: None,
            arriving: View::new(),
            seen: ResourceVersion::ZERO,
            start: ResourceVersion::ZERO,
            caught_up: None,
        }
    }

    pub(super) fn forget(&mut self) {
        self.stream = None;
        self.caught_up = None;
        self.view = None;
        self.arriving.clear();
    }

    pub(super) fn cut(&mut self) {
        self.stream = None;
        self.caught_up = None;
        self.arriving.clear();
    }

    /// Takes one item; false when there is none.
    pub(super) fn step(&mut self, etcd: &Etcd) -> Result<bool, String> {
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
            _ => drop(view.insert(object.key.clone(), object)),
        }
        Ok(())
    }

    /// Folds what the API server tells after the version that it has.
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

    /// Who had everything can only have fallen off what concerns it.
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

    /// Takes what is left of a watch of another history, which must be told that it is over.
    pub(super) fn end_expired(&mut self) -> CheckResult {
        while let Some(stream) = &mut self.stream {
            match poll(stream) {
                Poll::Ready(Some(WatchItem::Expired(_))) => self.forget(),
                Poll::Ready(Some(_)) => {}
                other => return Err(format!("an old watch was left open: {other:?}")),
            }
        }
        Ok(())
    }

    /// Takes up to `items` items; true when it has all there is, and its view is right.
    pub(super) fn take(
        &mut self,
        items: usize,
        etcd: &Etcd,
        applied: ResourceVersion,
    ) -> Result<bool, String> {
        for _ in 0..items {
            if !self.step(etcd)? {
                return self.check_tip(etcd, applied);
            }
        }
        Ok(false)
    }

    /// It has all there is, unless what it waits for is yet to come.
    pub(super) fn check_tip(
        &mut self,
        etcd: &Etcd,
        applied: ResourceVersion,
    ) -> Result<bool, String> {
        let Some(stream) = self.stream.as_ref().filter(|_| self.seen <= applied) else {
            return Ok(false);
        };
        self.check(etcd, applied, "the tip")?;
        if applied > self.start && stream.bookmark() != Some(applied) {
            return Err(format!("no bookmark at the tip, {applied}"));
        }
        self.caught_up = Some(applied);
        Ok(true)
    }
}
