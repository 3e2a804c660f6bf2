//! Series: decides which events are written, and how. Plain data without I/O and clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A series ends when there was no equal event for this time.
const SERIES_END: Duration = Duration::from_secs(6 * 60);
/// A series that continues is written again after this time.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// The number of new events that an object may have at once.
const BURST: u32 = 25;
/// The time after which an object may have one more new event.
const REFILL: Duration = Duration::from_secs(5 * 60);

/// How important an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something happened as expected.
    Normal,
    /// Something went wrong.
    Warning,
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How important it is.
    pub severity: Severity,
    /// Why it was done, as one word in upper camel case, such as `Invalid`; up to 128 bytes.
    pub reason: String,
    /// What was done, as one word in upper camel case, such as `Reconcile`; up to 128 bytes.
    pub action: String,
    /// A sentence for people. What exceeds 1,024 bytes is cut off.
    pub text: String,
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Regarding {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
}

/// The events of the last minutes.
#[derive(Default)]
pub(super) struct Aggregator {
    events: HashMap<Key, Known>,
    /// Series that were not written, and had ended when an equal event was recorded.
    ended: Vec<SeriesOf>,
    /// When the bucket of each object is full again.
    full_at: HashMap<Regarding, Instant>,
    next_name: u64,
}

/// What equal events have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    regarding: Regarding,
    severity: Severity,
    reason: String,
    action: String,
}

struct Known {
    event: Arc<NewEvent>,
    count: i32,
    last: Timestamp,
    /// When the last equal event was recorded.
    last_at: Instant,
    written_at: Instant,
    is_written: bool,
}

/// What is to be written for an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Create(Arc<NewEvent>),
    Series(SeriesOf),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewEvent {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) regarding: Regarding,
    pub(super) note: Note,
    pub(super) time: Timestamp,
}

/// The series of an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeriesOf {
    pub(super) event: Arc<NewEvent>,
    pub(super) count: i32,
    pub(super) last: Timestamp,
}

/// What happens with a recorded event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Recorded {
    Write(Write),
    Counted,
    Dropped,
}

impl Aggregator {
    /// Records an event at `now`. `time` is that time for people.
    pub(super) fn record(
        &mut self,
        regarding: Regarding,
        note: Note,
        now: Instant,
        time: Timestamp,
    ) -> Recorded {
        let key = Key::of(&regarding, &note);
        if let Some(known) = self.events.get_mut(&key)
            && now.saturating_duration_since(known.last_at) < SERIES_END
        {
            return known.count(now, time);
        }
        if !self.may_create(&key.regarding, now) {
            return Recorded::Dropped;
        }
        self.next_name += 1;
        let namespace = regarding.namespace.clone();
        let event = Arc::new(NewEvent {
            namespace: namespace.unwrap_or_else(|| "default".to_owned()),
            name: event_name(&regarding.name, self.next_name, time),
            regarding,
            note,
            time,
        });
        let known = Known {
            event: Arc::clone(&event),
            count: 1,
            last: time,
            last_at: now,
            written_at: now,
            is_written: true,
        };
        let ended = self.events.insert(key, known);
        let unwritten = ended.filter(|ended| !ended.is_written);
        self.ended.extend(unwritten.map(|ended| ended.series()));
        Recorded::Write(Write::Create(event))
    }

    /// Returns the series that are to be written at `now`. Forgets the series that have ended.
    pub(super) fn refresh(&mut self, now: Instant) -> Vec<SeriesOf> {
        let mut writes = std::mem::take(&mut self.ended);
        self.events.retain(|_, known| {
            let has_ended = now.saturating_duration_since(known.last_at) >= SERIES_END;
            let is_old = now.saturating_duration_since(known.written_at) >= REFRESH;
            if !known.is_written && (has_ended || is_old) {
                writes.push(known.written(now));
            }
            !has_ended
        });
        self.full_at.retain(|_, full_at| *full_at > now);
        writes
    }

    /// Returns the series with counts that were not written. The caller writes them at `now`.
    pub(super) fn take_unwritten(&mut self, now: Instant) -> Vec<SeriesOf> {
        let unwritten = self.events.values_mut().filter(|known| !known.is_written);
        let mut series = std::mem::take(&mut self.ended);
        series.extend(unwritten.map(|known| known.written(now)));
        series
    }

    /// Counts the series that [`Aggregator::take_unwritten`] would return.
    pub(super) fn unwritten(&self) -> usize {
        let known = self.events.values();
        self.ended.len() + known.filter(|known| !known.is_written).count()
    }

    /// Takes a token from the bucket of an object, if there is one.
    fn may_create(&mut self, regarding: &Regarding, now: Instant) -> bool {
        let full_at = self.full_at.get(regarding).copied();
        let full_at = full_at.map_or(now, |full_at| full_at.max(now)) + REFILL;
        let is_allowed = full_at <= now + REFILL * BURST;
        if is_allowed {
            self.full_at.insert(regarding.clone(), full_at);
        }
        is_allowed
    }
}

impl Key {
    fn of(regarding: &Regarding, note: &Note) -> Self {
        Self {
            regarding: Regarding {
                // Equal events may be about several versions of an object.
                resource_version: None,
                ..regarding.clone()
            },
            severity: note.severity,
            reason: note.reason.clone(),
            action: note.action.clone(),
        }
    }
}

impl Known {
    /// Counts an equal event.
    fn count(&mut self, now: Instant, time: Timestamp) -> Recorded {
        self.count = self.count.saturating_add(1);
        (self.last, self.last_at) = (time, now);
        // The series begins with the second event.
        if self.count > 2 {
            self.is_written = false;
            return Recorded::Counted;
        }
        Recorded::Write(Write::Series(self.written(now)))
    }

    /// Returns the series, which the caller writes at `now`.
    fn written(&mut self, now: Instant) -> SeriesOf {
        (self.written_at, self.is_written) = (now, true);
        self.series()
    }

    fn series(&self) -> SeriesOf {
        SeriesOf {
            event: Arc::clone(&self.event),
            count: self.count,
            last: self.last,
        }
    }
}

/// Returns a name that no other event has, made of the object's name, the time, and a number.
fn event_name(object: &str, number: u64, time: Timestamp) -> String {
    // A name has at most 253 characters. Names of objects are ASCII.
    let object: String = object.chars().take(200).collect();
    format!("{object}.{:x}-{number:x}", time.as_nanosecond())
}
