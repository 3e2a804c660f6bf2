//! View: the decoded objects and the indexes of a shared informer, derived from its cache.
//!
//! A view follows the event log with a cursor. A background task keeps it near the log's end. Who
//! reads it first takes what the log has more, so that a read is never older than the cache.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kubefan_core::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache::{Event, LogCursor, Reader, Snapshot};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::decode::Decoder;
use super::decoded_objects::{DecodedObjects, Entry};
use super::index::{Index, IndexError, IndexFunction};

/// How many bytes of replaced objects are kept decoded, for handlers that are told of the change next.
const RECENT_BYTES: usize = 1 << 20;

/// How many objects or changes are applied while readers wait. It limits their wait to the time that it
/// takes to decode so many objects.
pub(super) const STEP: usize = 32;

/// A view that many tasks read and that each of them may bring up to date.
pub(super) struct SharedView<K> {
    view: RwLock<View<K>>,
    /// True once the view has loaded all objects, or will never have any.
    loaded: watch::Sender<bool>,
}

/// The objects of a selection in one form, and indexes of them.
pub(super) struct View<K> {
    selection: Arc<Selection>,
    decoder: Arc<Decoder<K>>,
    keeps_objects: bool,
    functions: BTreeMap<String, IndexFunction<K>>,
    reader: Option<Reader>,
    phase: Phase<K>,
    content: Content<K>,
    recent: VecDeque<Recent<K>>,
    recent_bytes: usize,
}

/// A replaced object. The version is here, too, so that a search reads no other objects.
struct Recent<K> {
    version: ResourceVersion,
    object: Arc<Object>,
    /// `None` if it could not be decoded.
    decoded: Option<Arc<K>>,
}

enum Phase<K> {
    /// There is no snapshot to load: the cache is not ready.
    Waiting,
    /// The objects of `snapshot` with keys above `after` are loaded next.
    Loading {
        snapshot: Snapshot,
        after: Option<ObjectKey>,
        content: Box<Content<K>>,
        cursor: LogCursor,
    },
    /// Everything before the cursor is applied.
    Following(LogCursor),
}

struct Content<K> {
    /// Empty if the view does not keep them.
    objects: DecodedObjects<K>,
    indexes: BTreeMap<String, Index>,
}

// === impl SharedView ===

impl<K: DeserializeOwned> SharedView<K> {
    pub(super) fn new(view: View<K>) -> Self {
        Self {
            view: RwLock::new(view),
            loaded: watch::Sender::new(false),
        }
    }

    /// The view of the cache of `reader`, with everything that the cache has applied. What the view
    /// lacks is applied here, in steps between which other readers get their turn. `reader` is called
    /// for each step: with caches of different times, two callers would undo each other's steps.
    pub(super) fn current(
        &self,
        reader: impl Fn() -> Option<Reader>,
    ) -> RwLockReadGuard<'_, View<K>> {
        loop {
            let present = reader();
            if let Some(view) = self.if_current(present.as_ref()) {
                return view;
            }
            let mut view = self.view.write();
            view.follow(present);
            if view.advance(STEP) {
                return RwLockWriteGuard::downgrade(view);
            }
            RwLockWriteGuard::unlock_fair(view);
        }
    }

    /// The view of the cache of `reader`, if it has everything that the cache has applied.
    pub(super) fn if_current(
        &self,
        reader: Option<&Reader>,
    ) -> Option<RwLockReadGuard<'_, View<K>>> {
        let view = self.view.read();
        (view.follows(reader) && view.is_current()).then_some(view)
    }

    /// The decoded form of exactly this state of an object, like [`View::decoded`], of a view that may
    /// lack later changes.
    pub(super) fn decoded(&self, object: &Arc<Object>) -> Option<Option<Arc<K>>> {
        self.view.read().decoded(object)
    }

    /// Applies a step of what the view of the cache of `reader` lacks. Returns true if there is no more.
    pub(super) fn step(&self, reader: Option<Reader>) -> bool {
        if self.if_current(reader.as_ref()).is_some() {
            return true;
        }
        let mut view = self.view.write();
        view.follow(reader);
        view.advance(STEP)
    }

    /// Applies a step. Returns true if the view has everything then.
    pub(super) fn advance(&self) -> bool {
        let mut view = self.view.write();
        let is_current = view.advance(STEP);
        if is_current && view.is_following() {
            self.end_loading();
        }
        is_current
    }

    /// True if the view has everything that the cache has applied.
    pub(super) fn is_current(&self) -> bool {
        self.view.read().is_current()
    }

    /// Waits until the view has loaded all objects once, or will never have any. Cancel safe.
    pub(super) async fn loaded(&self) {
        // The sender is a field of `self`, so there is no error.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Lets nobody wait for objects any more.
    pub(super) fn end_loading(&self) {
        self.loaded
            .send_if_modified(|loaded| !std::mem::replace(loaded, true));
    }

    /// Waits until there is something to apply. Returns false if the cache was closed.
    pub(super) async fn changed(&self) -> bool {
        let changed = match &self.view.read().phase {
            Phase::Waiting => None,
            Phase::Loading { .. } => return true,
            Phase::Following(cursor) => Some(cursor.changed()),
        };
        let Some(changed) = changed else {
            let reader = self.view.read().reader.clone();
            return match reader {
                Some(reader) => reader.ready().await,
                None => false,
            };
        };
        changed.await
    }

    /// Follows the cache of `reader` from now on.
    pub(super) fn follow(&self, reader: Reader) {
        self.view.write().follow(Some(reader));
    }

    /// Adds an index, which has all present objects when this returns.
    pub(super) fn add_index(
        &self,
        name: String,
        function: IndexFunction<K>,
    ) -> Result<(), IndexError> {
        let mut view = self.view.write();
        if view.functions.contains_key(&name) {
            return Err(IndexError::Exists(name));
        }
        let mut index = Index::default();
        if view.keeps_objects && view.is_following() {
            // All objects are decoded, up to the cursor.
            for (object, decoded) in view.content.objects.iter() {
                if let Some(decoded) = decoded {
                    index.insert(object, function(decoded));
                }
            }
        } else {
            view.phase = Phase::Waiting;
        }
        view.functions.insert(name.clone(), function);
        view.content.indexes.insert(name, index);
        while !view.advance(usize::MAX) {}
        Ok(())
    }
}

// === impl View ===

impl<K: DeserializeOwned> View<K> {
    pub(super) fn new(
        selection: Arc<Selection>,
        decoder: Arc<Decoder<K>>,
        keeps_objects: bool,
    ) -> Self {
        Self {
            selection,
            decoder,
            keeps_objects,
            functions: BTreeMap::new(),
            reader: None,
            phase: Phase::Waiting,
            content: Content::new(&BTreeMap::new()),
            recent: VecDeque::new(),
            recent_bytes: 0,
        }
    }

    /// True if the view follows the cache of `reader`, or has to follow none.
    fn follows(&self, reader: Option<&Reader>) -> bool {
        match (&self.reader, reader) {
            (_, None) => true,
            (Some(followed), Some(reader)) => followed.is_of_same_cache(reader),
            (None, Some(_)) => false,
        }
    }

    fn follow(&mut self, reader: Option<Reader>) {
        if !self.follows(reader.as_ref()) {
            self.reader = reader;
            self.phase = Phase::Waiting;
        }
    }

    /// The number of objects, those included that cannot be decoded; 0 if the view does not keep them.
    pub(super) fn len(&self) -> usize {
        self.content.objects.len()
    }

    /// The decoded objects in key order; none if the view does not keep them.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        let objects = self.content.objects.iter();
        objects.filter_map(|(_, decoded)| decoded.as_ref())
    }

    /// Those of the decoded objects that `selection` selects.
    pub(super) fn select(&self, selection: &Selection) -> impl Iterator<Item = &Arc<K>> {
        let objects = self.content.objects.iter();
        let selected = objects.filter(|(object, _)| selection.matches(object));
        selected.filter_map(|(_, decoded)| decoded.as_ref())
    }

    /// The decoded object at `key`, if there is one and the view keeps it.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.content.objects.get(key)?.1.as_ref()
    }

    pub(super) fn index(&self, name: &str) -> Result<&Index, IndexError> {
        let index = self.content.indexes.get(name);
        index.ok_or_else(|| IndexError::Missing(name.to_owned()))
    }

    /// The decoded form of exactly this state of an object, or that it has none, which was reported
    /// before. `None` if the view does not have this state.
    pub(super) fn decoded(&self, object: &Arc<Object>) -> Option<Option<Arc<K>>> {
        if let Some(current) = self.current(object) {
            return Some(current.clone());
        }
        let version = object.resource_version;
        let is_same = |recent: &&Recent<K>| recent.version == version && recent.object == *object;
        let recent = self.recent.iter().rev().find(is_same)?;
        Some(recent.decoded.clone())
    }

    /// The decoded form of an object of an index or of a snapshot. An object that has none is reported
    /// unless it is the view's, which was reported when it was applied.
    pub(super) fn decode(&self, object: &Arc<Object>) -> Option<Arc<K>> {
        match self.current(object) {
            Some(current) => current.clone(),
            None => self.decoder.decode_or_report(object),
        }
    }

    /// What the view keeps of `object`, if this is the state that it has.
    fn current(&self, object: &Arc<Object>) -> Option<&Option<Arc<K>>> {
        let (known, decoded) = self.content.objects.get(&object.key)?;
        // The cache may have copied the object meanwhile, to free a larger buffer.
        (known == object).then_some(decoded)
    }

    /// True if the view has all changes up to its position in the cache's log.
    pub(super) fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Following(_))
    }

    fn is_current(&self) -> bool {
        match &self.phase {
            Phase::Waiting => !self.reader.as_ref().is_some_and(Reader::is_ready),
            Phase::Loading { .. } => false,
            Phase::Following(cursor) => cursor.is_at_tip(),
        }
    }

    /// Applies up to `max` objects or changes. Returns true if the view has everything then.
    fn advance(&mut self, max: usize) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Waiting => {
                let followed = self.reader.as_ref().and_then(Reader::follow);
                let Some((snapshot, cursor)) = followed else {
                    return true;
                };
                self.phase = Phase::Loading {
                    snapshot,
                    after: None,
                    content: Box::new(Content::new(&self.functions)),
                    cursor,
                };
                false
            }
            Phase::Loading {
                snapshot,
                after,
                mut content,
                cursor,
            } => {
                let last = self.load(&mut content, &snapshot, after.as_ref(), max);
                self.phase = match last {
                    Some(after) => Phase::Loading {
                        snapshot,
                        after: Some(after),
                        content,
                        cursor,
                    },
                    None => {
                        content.objects.rebuild_order();
                        self.content = *content;
                        Phase::Following(cursor)
                    }
                };
                false
            }
            Phase::Following(mut cursor) => {
                for _ in 0..max {
                    match cursor.next_applied() {
                        Ok(Some(event)) => self.apply(&event),
                        Ok(None) => {
                            self.phase = Phase::Following(cursor);
                            return true;
                        }
                        // The log has dropped what the view needs next: it loads the present state.
                        Err(_expired) => return false,
                    }
                }
                self.phase = Phase::Following(cursor);
                false
            }
        }
    }

    /// Loads up to `max` objects with keys above `after`. Returns the last key, or `None` if there
    /// are no more.
    fn load(
        &self,
        content: &mut Content<K>,
        snapshot: &Snapshot,
        after: Option<&ObjectKey>,
        max: usize,
    ) -> Option<ObjectKey> {
        let after = after.map(ObjectKey::as_str);
        let mut last = None;
        let candidates = snapshot.candidates(&self.selection, after);
        for (count, object) in candidates.enumerate() {
            if count == max {
                return last;
            }
            last = Some(object.key.clone());
            if self.selection.matches(object) {
                content.insert(
                    &self.functions,
                    self.keeps_objects,
                    object,
                    self.decode(object),
                );
            }
        }
        None
    }

    fn apply(&mut self, event: &Event) {
        let Some(verdict) = event.verdict(&self.selection) else {
            return;
        };
        let object = &event.object;
        let content = &mut self.content;
        let replaced = match verdict {
            EventType::Deleted => content.remove(&object.key),
            EventType::Added | EventType::Modified => {
                let decoded = self.decoder.decode_or_report(object);
                content.insert(&self.functions, self.keeps_objects, object, decoded)
            }
        };
        if let Some((object, decoded)) = replaced {
            self.recent_bytes += object.size();
            self.recent.push_back(Recent {
                version: object.resource_version,
                object,
                decoded,
            });
            while self.recent_bytes > RECENT_BYTES
                && let Some(oldest) = self.recent.pop_front()
            {
                self.recent_bytes -= oldest.object.size();
            }
        }
    }
}

// === impl Content ===

impl<K: DeserializeOwned> Content<K> {
    fn new(functions: &BTreeMap<String, IndexFunction<K>>) -> Self {
        let names = functions.keys();
        Self {
            objects: DecodedObjects::new(),
            indexes: names.map(|name| (name.clone(), Index::default())).collect(),
        }
    }

    /// Adds `object` with its decoded form, if it has one, or replaces its old state, which is
    /// returned.
    fn insert(
        &mut self,
        functions: &BTreeMap<String, IndexFunction<K>>,
        keeps_objects: bool,
        object: &Arc<Object>,
        decoded: Option<Arc<K>>,
    ) -> Option<Entry<K>> {
        for (name, index) in &mut self.indexes {
            match (&decoded, functions.get(name)) {
                (Some(decoded), Some(function)) => index.insert(object, function(decoded)),
                _ => index.remove(&object.key),
            }
        }
        if !keeps_objects {
            return None;
        }
        self.objects.insert((Arc::clone(object), decoded))
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        for index in self.indexes.values_mut() {
            index.remove(key);
        }
        self.objects.remove(key)
    }
}
