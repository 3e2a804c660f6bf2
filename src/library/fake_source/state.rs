//! The objects and the history of a fake source.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use kubefan_core::api::{
    EventType, ListPage, Object, ObjectKey, ResourceVersion, Status, WatchEvent,
};
use kubefan_core::codec::Decoder;
use kubefan_core::upstream;
use kubefan_core::upstream::{ListCall, ResumePoint, WatchCall};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::error::Error;

/// The state that a source and its watches share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Notified after each change of the state.
    pub(super) changed: Notify,
}

/// A call that a source received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// [`ListerWatcher::list`](upstream::ListerWatcher::list).
    List(ListCall),
    /// [`ListerWatcher::watch`](upstream::ListerWatcher::watch).
    Watch(WatchCall),
    /// [`ListerWatcher::barrier`](upstream::ListerWatcher::barrier).
    Barrier,
}

pub(super) struct State {
    decoder: Decoder,
    version: u64,
    objects: BTreeMap<ObjectKey, Stored>,
    /// The events since the history was last forgotten: their versions and frames.
    history: Vec<(u64, Bytes)>,
    /// The number of events that were forgotten before those in `history`.
    forgotten: usize,
    /// The oldest version that a watch may start after.
    oldest: u64,
    /// For each list with a next page that was not fetched: the rest of the list, by continue
    /// token.
    pages: HashMap<String, (u64, VecDeque<Object>)>,
    next_token: u64,
    /// Counts the calls that ended all watches.
    pub(super) generation: u64,
    /// How the watches of the previous generation were ended.
    pub(super) ending: Ending,
    pub(super) is_held: bool,
    pub(super) failure: Option<Status>,
    pub(super) next_failures: VecDeque<upstream::Error>,
    pub(super) requests: Vec<Request>,
    pub(super) watchers: usize,
}

/// How open watches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Clean,
    Broken,
    Expired,
}

struct Stored {
    json: Map<String, Value>,
    object: Object,
}

impl State {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            version: 1,
            objects: BTreeMap::new(),
            history: Vec::new(),
            forgotten: 0,
            oldest: 1,
            pages: HashMap::new(),
            next_token: 0,
            generation: 0,
            ending: Ending::Clean,
            is_held: false,
            failure: None,
            next_failures: VecDeque::new(),
            requests: Vec::new(),
            watchers: 0,
        }
    }

    pub(super) fn version(&self) -> ResourceVersion {
        ResourceVersion(self.version)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().map(|stored| &stored.object)
    }

    // === changes ===

    pub(super) fn add(&mut self, json: Value) -> Result<ResourceVersion, Error> {
        let (key, json) = keyed(json)?;
        if self.objects.contains_key(&key) {
            Err(Error::AlreadyExists(key))
        } else {
            self.put(EventType::Added, key, json)
        }
    }

    pub(super) fn modify(&mut self, json: Value) -> Result<ResourceVersion, Error> {
        let (key, mut json) = keyed(json)?;
        let Some(stored) = self.objects.get(&key) else {
            return Err(Error::NotFound(key));
        };
        let uid = stored.object.uid().to_owned();
        metadata_of(&mut json).entry("uid").or_insert(uid.into());
        self.put(EventType::Modified, key, json)
    }

    pub(super) fn delete(&mut self, key: &ObjectKey) -> Result<ResourceVersion, Error> {
        let Some(stored) = self.objects.get(key) else {
            return Err(Error::NotFound(key.clone()));
        };
        let json = stored.json.clone();
        self.change(EventType::Deleted, json)?;
        self.objects.remove(key);
        Ok(self.version())
    }

    fn put(
        &mut self,
        event_type: EventType,
        key: ObjectKey,
        mut json: Map<String, Value>,
    ) -> Result<ResourceVersion, Error> {
        let uid = format!("uid-{}", self.version + 1);
        metadata_of(&mut json).entry("uid").or_insert(uid.into());
        let object = self.change(event_type, json.clone())?;
        self.objects.insert(key, Stored { json, object });
        Ok(self.version())
    }

    /// Adds an event to the history at the next version. Returns the object of the event.
    fn change(
        &mut self,
        event_type: EventType,
        mut json: Map<String, Value>,
    ) -> Result<Object, Error> {
        let version = self.version + 1;
        metadata_of(&mut json).insert("resourceVersion".into(), version.to_string().into());
        let frame = frame(event_type.as_str(), &Value::Object(json));
        let event = self.decoder.event(frame.clone());
        let event = event.map_err(|error| Error::Decode(error.into()))?;
        let WatchEvent::Change { object, .. } = event else {
            return Err(Error::NoName);
        };
        self.version = version;
        self.history.push((version, frame));
        Ok(object)
    }

    pub(super) fn bookmark(&mut self) {
        let frame = self.bookmark_frame(false);
        self.history.push((self.version, frame));
    }

    /// Forgets all events before now, and the pages of lists.
    pub(super) fn forget_history(&mut self) {
        self.oldest = self.version;
        self.forgotten += self.history.len();
        self.history.clear();
        self.pages.clear();
    }

    pub(super) fn end_watches(&mut self, ending: Ending) {
        self.generation += 1;
        self.ending = ending;
    }

    // === answers ===

    pub(super) fn page(&mut self, call: &ListCall) -> Result<ListPage, upstream::Error> {
        let (version, mut items) = match &call.continue_token {
            Some(token) => self.pages.remove(token).ok_or_else(expired)?,
            None => (self.version, self.objects().cloned().collect()),
        };
        let rest = match call.limit {
            0 => VecDeque::new(),
            limit => items.split_off(items.len().min(limit as usize)),
        };
        let continue_token = (!rest.is_empty()).then(|| {
            self.next_token += 1;
            let token = format!("page-{}", self.next_token);
            self.pages.insert(token.clone(), (version, rest));
            token
        });
        Ok(ListPage {
            resource_version: ResourceVersion(version),
            continue_token,
            items: items.into(),
        })
    }

    /// Returns the first events of a watch, and its position in the history after them.
    pub(super) fn start(&self, start: ResumePoint) -> (VecDeque<WatchEvent>, usize) {
        let end = self.forgotten + self.history.len();
        match start {
            ResumePoint::InitialEvents => {
                let stored = self.objects.values();
                let mut events: VecDeque<_> = stored.map(|stored| self.added(stored)).collect();
                events.push_back(self.decode(self.bookmark_frame(true)));
                (events, end)
            }
            ResumePoint::After(version) if version.0 < self.oldest => {
                (VecDeque::from([WatchEvent::Error(expired_status())]), end)
            }
            ResumePoint::After(version) => {
                let is_known = |(of_event, _): &(u64, Bytes)| *of_event <= version.0;
                let known = self.history.partition_point(is_known);
                (VecDeque::new(), self.forgotten + known)
            }
        }
    }

    /// Returns the event at `position` of the history, if there is one.
    pub(super) fn event(&self, position: usize) -> Option<WatchEvent> {
        let (_, frame) = self.history.get(position.checked_sub(self.forgotten)?)?;
        Some(self.decode(frame.clone()))
    }

    /// Returns an object as the initial event of a watch-list.
    fn added(&self, stored: &Stored) -> WatchEvent {
        let mut json = stored.json.clone();
        let version = stored.object.resource_version.to_string();
        metadata_of(&mut json).insert("resourceVersion".into(), version.into());
        self.decode(frame("ADDED", &Value::Object(json)))
    }

    /// Decodes a frame of this source.
    fn decode(&self, frame: Bytes) -> WatchEvent {
        let event = self.decoder.event(frame);
        event.expect("the source made this frame")
    }

    fn bookmark_frame(&self, initial_events_end: bool) -> Bytes {
        let first = self.objects.values().next();
        let member = |name: &str| first.and_then(|stored| stored.json.get(name)).cloned();
        let mut object = json!({
            "kind": member("kind").unwrap_or("Object".into()),
            "apiVersion": member("apiVersion").unwrap_or("v1".into()),
            "metadata": {"resourceVersion": self.version.to_string()},
        });
        if initial_events_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        frame("BOOKMARK", &object)
    }
}

/// Returns the key of an object with `metadata.name`, and its JSON.
fn keyed(json: Value) -> Result<(ObjectKey, Map<String, Value>), Error> {
    let text = |name: &str| json["metadata"][name].as_str();
    let name = text("name").filter(|name| !name.is_empty());
    let key = ObjectKey::new(text("namespace"), name.ok_or(Error::NoName)?);
    match json {
        Value::Object(json) => Ok((key, json)),
        _ => Err(Error::NoName),
    }
}

/// Returns the metadata of an object. Panics if there is none.
fn metadata_of(json: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let metadata = json.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.expect("an object with a name has metadata")
}

fn frame(event_type: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n").into()
}

pub(super) fn expired_status() -> Status {
    Status::failure(410, "Expired", "too old resource version")
}

fn expired() -> upstream::Error {
    answer(expired_status())
}

pub(super) fn answer(status: Status) -> upstream::Error {
    upstream::Error::Answer {
        status: Box::new(status),
        retry_after: None,
    }
}
