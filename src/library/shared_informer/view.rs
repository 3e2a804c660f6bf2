//! View: the decoded objects and the indexes of a shared informer, derived from its cache.
//!
//! A view follows the event log with a cursor. A background task moves the cursor near the log's
//! end. A reader first applies the rest of the log, so a read is never older than the cache.

mod decoded_objects;
mod key_order;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kubefan_core::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache::{Event, LogCursor, Reader, Snapshot};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::decoded_objects::{DecodedObjects, Entry};
use super::decode::Decoder;
use super::index::{Index, IndexError, IndexFunction};

/// How many bytes of replaced objects stay decoded, for the handlers that receive their changes
/// next.
const RECENT_BYTES: usize = 1 << 20;

/// How many objects or changes are applied while readers wait. It limits their wait to the time
/// that decoding this number of objects takes.
pub(super) const STEP: usize = 32;

/// A view that many tasks read. Each of them may bring it up to date.
pub(super) struct SharedView<K> {
    view: RwLock<View<K>>,
    /// Frees what a new list has replaced, on another thread if possible.
    free: fn(Content<K>),
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
    /// The content before a new list. It is freed when the view is unlocked, because that may take
    /// long.
    replaced: Option<Content<K>>,
}

/// A replaced object. It has a copy of the object's version, so that a search reads no other
/// objects.
struct Recent<K> {
    version: ResourceVersion,
    object: Arc<Object>,
    /// `None` if it could not be decoded.
    decoded: Option<Arc<K>>,
}

enum Phase<K> {
    /// There is no snapshot to load: the cache is not ready.
    Waiting,
    Loading(Loading<K>),
    /// Everything before the cursor is applied.
    Following(LogCursor),
}

/// The objects of `snapshot` with keys above `after` are loaded next.
struct Loading<K> {
    snapshot: Snapshot,
    after: Option<ObjectKey>,
    content: Box<Content<K>>,
    /// The position in the log after the snapshot.
    cursor: LogCursor,
}

pub(super) struct Content<K> {
    /// Empty if the view does not store them.
    objects: DecodedObjects<K>,
    indexes: BTreeMap<String, Index>,
}

// === impl SharedView ===

impl<K: DeserializeOwned> SharedView<K> {
    pub(super) fn new(view: View<K>, free: fn(Content<K>)) -> Self {
        Self {
            view: RwLock::new(view),
            free,
            loaded: watch::Sender::new(false),
        }
    }

    /// Returns the view of the cache of `reader`, with everything that the cache has applied.
    /// First applies what the view lacks, in steps between which other readers may read. Calls
    /// `reader` for each step: if two callers had got their caches at different times, they would
    /// undo each other's steps.
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
            self.unlock(view);
        }
    }

    /// Unlocks the view after a step, so that waiting readers are next.
    fn unlock(&self, mut view: RwLockWriteGuard<'_, View<K>>) {
        let replaced = view.replaced.take();
        RwLockWriteGuard::unlock_fair(view);
        if let Some(replaced) = replaced.filter(|replaced| replaced.objects.len() > 0) {
            (self.free)(replaced);
        }
    }

    /// Returns the view of the cache of `reader`, if it has everything that the cache has applied.
    pub(super) fn if_current(
        &self,
        reader: Option<&Reader>,
    ) -> Option<RwLockReadGuard<'_, View<K>>> {
        let view = self.view.read();
        (view.follows(reader) && view.is_current()).then_some(view)
    }

    /// Returns the decoded form of exactly this state of an object, like [`View::decoded`]. The
    /// view may lack later changes.
    pub(super) fn decoded(&self, object: &Arc<Object>) -> Option<Option<Arc<K>>> {
        self.view.read().decoded(object)
    }

    /// Applies a step of what the view of the cache of `reader` lacks. Returns true if nothing is
    /// left.
    pub(super) fn step(&self, reader: Option<Reader>) -> bool {
        if self.if_current(reader.as_ref()).is_some() {
            return true;
        }
        let mut view = self.view.write();
        view.follow(reader);
        let is_current = view.advance(STEP);
        self.unlock(view);
        is_current
    }

    /// Applies a step. Returns true if the view is up to date afterwards.
    pub(super) fn advance(&self) -> bool {
        let mut view = self.view.write();
        let is_current = view.advance(STEP);
        if is_current && view.is_following() {
            self.end_loading();
        }
        self.unlock(view);
        is_current
    }

    /// Returns true if the view has everything that the cache has applied.
    pub(super) fn is_current(&self) -> bool {
        self.view.read().is_current()
    }

    /// Waits until the view has loaded all objects once, or will never have any. Cancel safe.
    pub(super) async fn loaded(&self) {
        // The sender is a field of `self`, so there is no error.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Ends all waits of [`SharedView::loaded`], also later ones.
    pub(super) fn end_loading(&self) {
        self.loaded
            .send_if_modified(|loaded| !std::mem::replace(loaded, true));
    }

    /// Waits until there is something to apply. Returns false if the cache was closed.
    pub(super) async fn changed(&self) -> bool {
        let changed = match &self.view.read().phase {
            Phase::Waiting => None,
            Phase::Loading(_) => return true,
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

    /// Adds an index. It has all present objects when the view is [current](SharedView::current).
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
            // All objects up to the cursor are decoded.
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
            replaced: None,
        }
    }

    /// Returns true if the view follows the cache of `reader`, or if `reader` is `None`.
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

    /// Counts the objects, including those that cannot be decoded. Returns 0 if the view stores
    /// none.
    pub(super) fn len(&self) -> usize {
        self.content.objects.len()
    }

    /// Returns the decoded objects in key order; none if the view stores none.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        let objects = self.content.objects.iter();
        objects.filter_map(|(_, decoded)| decoded.as_ref())
    }

    /// Returns the decoded objects that `selection` selects.
    pub(super) fn select(&self, selection: &Selection) -> impl Iterator<Item = &Arc<K>> {
        let objects = self.content.objects.iter();
        let selected = objects.filter(|(object, _)| selection.matches(object));
        selected.filter_map(|(_, decoded)| decoded.as_ref())
    }

    /// Returns the decoded object at `key`, if there is one and the view stores it.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.content.objects.get(key)?.1.as_ref()
    }

    pub(super) fn index(&self, name: &str) -> Result<&Index, IndexError> {
        let index = self.content.indexes.get(name);
        index.ok_or_else(|| IndexError::Missing(name.to_owned()))
    }

    /// Returns the decoded form of exactly this state of an object. The inner `None` means that the
    /// state cannot be decoded, which was reported before. The outer `None` means that the view
    /// does not have this state.
    pub(super) fn decoded(&self, object: &Arc<Object>) -> Option<Option<Arc<K>>> {
        if let Some(current) = self.current(object) {
            return Some(current.clone());
        }
        let version = object.resource_version;
        let is_same = |recent: &&Recent<K>| recent.version == version && recent.object == *object;
        let recent = self.recent.iter().rev().find(is_same)?;
        Some(recent.decoded.clone())
    }

    /// Decodes an object of an index or of a snapshot, or returns the view's decoded form. If the
    /// object cannot be decoded, reports that, unless the view has applied the object and reported
    /// it then.
    pub(super) fn decode(&self, object: &Arc<Object>) -> Option<Arc<K>> {
        match self.current(object) {
            Some(current) => current.clone(),
            None => self.decoder.decode_or_report(object),
        }
    }

    /// Returns what the view has decoded of `object`, if this is the state that it has.
    fn current(&self, object: &Arc<Object>) -> Option<&Option<Arc<K>>> {
        let (known, decoded) = self.content.objects.get(&object.key)?;
        // The cache may have copied the object since then, to free a larger buffer.
        (known == object).then_some(decoded)
    }

    /// Returns true if the view has all changes up to its position in the cache's log.
    pub(super) fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Following(_))
    }

    fn is_current(&self) -> bool {
        match &self.phase {
            Phase::Waiting => !self.reader.as_ref().is_some_and(Reader::is_ready),
            Phase::Loading(_) => false,
            Phase::Following(cursor) => cursor.is_at_tip(),
        }
    }

    /// Applies up to `max` objects or changes. Returns true if the view is up to date afterwards.
    fn advance(&mut self, max: usize) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Waiting => {
                let followed = self.reader.as_ref().and_then(Reader::follow);
                let Some((snapshot, cursor)) = followed else {
                    return true;
                };
                self.phase = Phase::Loading(Loading {
                    snapshot,
                    after: None,
                    content: Box::new(Content::new(&self.functions)),
                    cursor,
                });
                false
            }
            Phase::Loading(mut loading) => {
                loading.after = self.load(&mut loading, max);
                self.phase = if loading.after.is_some() {
                    Phase::Loading(loading)
                } else {
                    self.replaced = Some(std::mem::replace(&mut self.content, *loading.content));
                    Phase::Following(loading.cursor)
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

    /// Loads up to `max` objects. Returns the last loaded key, or `None` if no objects are left.
    fn load(&self, loading: &mut Loading<K>, max: usize) -> Option<ObjectKey> {
        let after = loading.after.as_ref().map(ObjectKey::as_str);
        let mut last = None;
        let candidates = loading.snapshot.candidates(&self.selection, after);
        for (count, object) in candidates.enumerate() {
            if count == max {
                return last;
            }
            last = Some(object.key.clone());
            if self.selection.matches(object) {
                let (functions, decoded) = (&self.functions, self.decode(object));
                let content = &mut loading.content;
                content.insert(functions, self.keeps_objects, object, decoded);
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

    /// Adds `object` with its decoded form, if it can be decoded. Returns the entry of its old
    /// state, if the view stores objects.
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
