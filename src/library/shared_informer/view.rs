//! View: the decoded objects and the indexes of a shared informer, derived from its cache.
//!
//! A view follows the event log with a cursor. A background task moves the cursor near the log's
//! end. A reader first applies the rest of the log, so a read is never older than the cache.

mod decoded_objects;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kubefan_core::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache::{Event, LogCursor, Reader, Snapshot};
use serde::de::DeserializeOwned;

use self::decoded_objects::{DecodedObjects, Entry};
use super::decode::Decoder;
use super::index::{Index, IndexError, IndexFunction};
use super::reached::MANY;

/// How many bytes of replaced objects stay decoded, for the handlers that receive their changes
/// next.
const RECENT_BYTES: usize = 1 << 20;

/// How many objects or changes are applied while readers wait. It limits their wait to the time
/// that decoding this number of objects takes.
pub(super) const STEP: usize = 32;

/// The objects of a selection in one form, and indexes of them.
pub(super) struct View<K> {
    selection: Arc<Selection>,
    decoder: Arc<Decoder<K>>,
    keeps_objects: bool,
    functions: BTreeMap<String, IndexFunction<K>>,
    /// The indexes that do not have all of `content` yet, with the last key that was added.
    incomplete: BTreeMap<String, Option<ObjectKey>>,
    pub(super) reader: Option<Reader>,
    pub(super) phase: Phase<K>,
    content: Content<K>,
    recent: VecDeque<Recent<K>>,
    recent_bytes: usize,
    /// What is freed when the view is unlocked, because that may take long.
    pub(super) unused: Vec<Unused<K>>,
}

/// What a view no longer needs. Freeing it may take long.
pub(super) enum Unused<K> {
    /// Decoded objects, and the snapshot of a load that has ended.
    Loaded(Box<Content<K>>, Snapshot),
    /// A cache that another one has replaced.
    Cache(Reader),
    /// All of an informer that has ended, also its cache.
    View(Box<View<K>>),
}

/// A replaced object. It has a copy of the object's version, so that a search reads no other
/// objects.
struct Recent<K> {
    version: ResourceVersion,
    object: Arc<Object>,
    /// `None` if it could not be decoded.
    decoded: Option<Arc<K>>,
}

pub(super) enum Phase<K> {
    /// There is no snapshot to load: the cache is not ready.
    Waiting,
    Loading(Loading<K>),
    /// Everything before the cursor is applied.
    Following(LogCursor),
}

/// The objects of `snapshot` with keys above `after` are loaded next.
pub(super) struct Loading<K> {
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

// === impl View ===

impl<K> View<K> {
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
            incomplete: BTreeMap::new(),
            reader: None,
            phase: Phase::Waiting,
            content: Content::new(&BTreeMap::new()),
            recent: VecDeque::new(),
            recent_bytes: 0,
            unused: Vec::new(),
        }
    }

    /// Takes all of the view except its position in the log, which is given up at once. An empty
    /// view remains.
    pub(super) fn take(&mut self) -> Self {
        // The cache counts positions as watchers, and is to know at once that it has one less.
        self.wait();
        let (selection, decoder) = (Arc::clone(&self.selection), Arc::clone(&self.decoder));
        std::mem::replace(self, Self::new(selection, decoder, false))
    }

    /// Begins again once the cache is ready. A load that has not ended was in vain.
    fn wait(&mut self) {
        if let Phase::Loading(loading) = std::mem::replace(&mut self.phase, Phase::Waiting) {
            let unused = Unused::Loaded(loading.content, loading.snapshot);
            self.unused.push(unused);
        }
    }
}

impl<K: DeserializeOwned> View<K> {
    /// Returns true if the view follows the cache of `reader`, or if `reader` is `None`.
    pub(super) fn follows(&self, reader: Option<&Reader>) -> bool {
        match (&self.reader, reader) {
            (_, None) => true,
            (Some(followed), Some(reader)) => followed.is_of_same_cache(reader),
            (None, Some(_)) => false,
        }
    }

    /// Follows the cache of `reader` from now on, if there is one.
    pub(super) fn follow(&mut self, reader: Option<Reader>) {
        if !self.follows(reader.as_ref()) {
            let before = std::mem::replace(&mut self.reader, reader);
            self.wait();
            self.unused.extend(before.map(Unused::Cache));
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
        let complete = index.filter(|_| !self.incomplete.contains_key(name));
        complete.ok_or_else(|| IndexError::Missing(name.to_owned()))
    }

    /// Adds an index without objects, which [`View::fill_index`] completes.
    pub(super) fn add_index(
        &mut self,
        name: &str,
        function: IndexFunction<K>,
    ) -> Result<(), IndexError> {
        if self.functions.contains_key(name) {
            return Err(IndexError::Exists(name.to_owned()));
        }
        self.functions.insert(name.to_owned(), function);
        let indexes = &mut self.content.indexes;
        indexes.insert(name.to_owned(), Index::default());
        self.incomplete.insert(name.to_owned(), None);
        if !self.keeps_objects || !self.is_following() {
            // All objects are loaded for the new index, too.
            self.wait();
        }
        Ok(())
    }

    pub(super) fn remove_index(&mut self, name: &str) {
        self.functions.remove(name);
        self.incomplete.remove(name);
        self.content.indexes.remove(name);
        if matches!(self.phase, Phase::Loading(_)) {
            // What is being loaded has the index, too.
            self.wait();
        }
    }

    /// Adds up to `max` of the decoded objects to the index `name`. Returns true if it has all.
    ///
    /// Changes may be applied in between. They are applied to this index, too, so it also has those
    /// of objects that it got before.
    pub(super) fn fill_index(&mut self, name: &str, max: usize) -> bool {
        let indexes = &mut self.content.indexes;
        let (Some(after), Some(function), Some(index)) = (
            self.incomplete.get_mut(name),
            self.functions.get(name),
            indexes.get_mut(name),
        ) else {
            return true;
        };
        let mut last = None;
        for (object, decoded) in self.content.objects.after(after.as_ref()).take(max) {
            if let Some(decoded) = decoded {
                index.insert(object, function(decoded));
            }
            last = Some(&object.key);
        }
        if let Some(last) = last {
            *after = Some(last.clone());
            return false;
        }
        self.incomplete.remove(name);
        true
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

    pub(super) fn is_current(&self) -> bool {
        match &self.phase {
            Phase::Waiting => !self.reader.as_ref().is_some_and(Reader::is_ready),
            Phase::Loading(_) => false,
            Phase::Following(cursor) => cursor.is_at_tip(),
        }
    }

    /// Applies up to `max` objects or changes. Returns true if the view is up to date afterwards.
    pub(super) fn advance(&mut self, max: usize) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Waiting => self.begin_load(),
            Phase::Loading(loading) => {
                self.continue_load(loading, max);
                false
            }
            Phase::Following(cursor) => self.apply_next(cursor, max),
        }
    }

    /// Begins to load a snapshot. Returns true if there is none.
    fn begin_load(&mut self) -> bool {
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

    /// Loads up to `max` objects. After the last one, the loaded objects replace those before.
    fn continue_load(&mut self, mut loading: Loading<K>, max: usize) {
        loading.after = self.load(&mut loading, max);
        if loading.after.is_some() {
            self.phase = Phase::Loading(loading);
            return;
        }
        std::mem::swap(&mut self.content, &mut *loading.content);
        let unused = Unused::Loaded(loading.content, loading.snapshot);
        self.unused.push(unused);
        // All indexes were loaded.
        self.incomplete.clear();
        self.phase = Phase::Following(loading.cursor);
    }

    /// Applies up to `max` changes. Returns true if none is left.
    fn apply_next(&mut self, mut cursor: LogCursor, max: usize) -> bool {
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

impl<K> Content<K> {
    fn new(functions: &BTreeMap<String, IndexFunction<K>>) -> Self {
        let names = functions.keys();
        Self {
            objects: DecodedObjects::new(),
            indexes: names.map(|name| (name.clone(), Index::default())).collect(),
        }
    }

    /// Counts the objects that the content refers to, or fewer if it does not store them and has
    /// several indexes.
    fn len(&self) -> usize {
        let indexed = self.indexes.values().map(Index::len);
        indexed.fold(self.objects.len(), usize::max)
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

// === impl Unused ===

impl<K> Unused<K> {
    /// Returns true if freeing this may take long.
    pub(super) fn is_large(&self) -> bool {
        match self {
            Self::Loaded(content, snapshot) => content.len().max(snapshot.len()) >= MANY,
            // While the cache has content, its writer refers to it, too.
            Self::Cache(reader) => !reader.is_ready(),
            Self::View(view) => view.reader.is_some(),
        }
    }
}
