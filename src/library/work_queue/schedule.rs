//! Schedule: which keys are due, in which order they run, and which are running.
//!
//! It is plain data without a clock: the caller passes the time, and wakes workers.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::metrics::Load;
use super::options::AddOptions;
use super::rate_limiter::RateLimiter;

/// The longest delay. Longer delays have no other effect in practice, and would
/// overflow an `Instant`.
const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The keys of a queue.
///
/// A key is in `keys` if it is running, or if a run is requested, or both. A requested run is in
/// `lines`, except while the key is running.
pub(super) struct Schedule<K> {
    keys: HashMap<Arc<K>, KeyState>,
    lines: Lines<K>,
    /// The number and the start of each present run, one for each `Work` that workers hold.
    runs: Vec<(u64, Instant)>,
    next_run: u64,
    pub(super) rate_limiter: Box<dyn RateLimiter<K>>,
    /// True after [`Schedule::shut_down`].
    pub(super) is_shutting_down: bool,
}

/// The two lines where requested runs wait.
struct Lines<K> {
    /// The keys that a worker can take, in the order of their runs.
    ready: BTreeMap<Rank, Arc<K>>,
    /// The keys that are not due yet, by the time when they are due.
    waiting: BTreeMap<(Instant, u64), Arc<K>>,
    next_sequence: u64,
    /// How often a key became ready since [`Schedule::take_entered`] was last called.
    entered: u64,
    ageing: Duration,
    /// The start of the time scale of ranks.
    origin: Instant,
}

/// The place of a key among those that are ready; the lowest rank runs first.
///
/// The first part is the time when the key was due, in nanoseconds, minus the head start of its
/// priority. All keys age equally fast, so the order of two waiting keys never changes. The second
/// part is the order of the requests.
type Rank = (i128, u64);

#[derive(Default)]
struct KeyState {
    is_running: bool,
    /// True if the key was forgotten during its present run. If a run was requested after that, a
    /// failure of the present run does not count.
    is_forgotten: bool,
    request: Option<Request>,
}

/// A requested run of one key. There may be very many requests, so a request is small: the place of
/// the key in its line follows from the other fields. While the request is in a line,
/// [`Lines::place`] must be called after each change of it.
#[derive(Clone, Copy)]
struct Request {
    sequence: u64,
    priority: i32,
    /// The earliest time for which a run was requested.
    wanted_at: Instant,
    /// The end of the key's backoff, if it is or was in backoff since its last run.
    backoff_until: Option<Instant>,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// In no line. The key is running, and gets its place when this run is done.
    Held,
    /// The key is in [`Lines::ready`].
    Ready,
    /// The key is in [`Lines::waiting`].
    Waiting,
}

/// The effect of a change of the schedule on waiting workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// A key became ready.
    Ready,
    /// A key will be ready at this time.
    Due(Instant),
}

/// A key that a worker has taken.
pub(super) struct Run<K> {
    pub(super) key: Arc<K>,
    number: u64,
    pub(super) started: Instant,
    pub(super) priority: i32,
    /// How long the key waited after it was due.
    pub(super) waited: Duration,
}

// === impl Schedule ===

impl<K: Eq + Hash + 'static> Schedule<K> {
    pub(super) fn new(
        rate_limiter: Box<dyn RateLimiter<K>>,
        ageing: Duration,
        now: Instant,
    ) -> Self {
        Self {
            keys: HashMap::new(),
            lines: Lines {
                ready: BTreeMap::new(),
                waiting: BTreeMap::new(),
                next_sequence: 0,
                entered: 0,
                ageing,
                origin: now,
            },
            runs: Vec::new(),
            next_run: 0,
            rate_limiter,
            is_shutting_down: false,
        }
    }

    /// Requests a run of `key`. Does nothing after [`Schedule::shut_down`].
    pub(super) fn add(&mut self, key: K, options: AddOptions, now: Instant) -> Change {
        if self.is_shutting_down {
            return Change::None;
        }
        let (key, state) = match self.keys.entry(Arc::new(key)) {
            MapEntry::Occupied(entry) => (Arc::clone(entry.key()), entry.into_mut()),
            MapEntry::Vacant(entry) => (Arc::clone(entry.key()), entry.insert(KeyState::default())),
        };
        let wanted_at = now + options.after.min(MAX_DELAY);
        let counts = !(state.is_forgotten && state.request.is_some());
        let new = || self.lines.request(options.priority, wanted_at);
        let before = state.request.unwrap_or_else(new);
        let mut request = before;
        request.priority = request.priority.max(options.priority);
        request.wanted_at = request.wanted_at.min(wanted_at);
        if options.is_rate_limited && counts && request.backoff_until.is_none() {
            let backoff = self.rate_limiter.when(&key, now);
            request.backoff_until = Some(now + backoff.min(MAX_DELAY));
        }
        let change = if state.is_running {
            Change::None
        } else {
            self.lines.place(&key, before, &mut request, now)
        };
        state.request = Some(request);
        change
    }

    /// Forgets the failures of `key`, and ends its backoff. A run that waits for the end of the
    /// backoff is then due at the time for which it was requested.
    pub(super) fn forget(&mut self, key: &K, now: Instant) -> Change {
        self.rate_limiter.forget(key);
        let Some(state) = self.keys.get_mut(key) else {
            return Change::None;
        };
        state.is_forgotten = state.is_running;
        let Some(request) = &mut state.request else {
            return Change::None;
        };
        let before = *request;
        request.backoff_until = None;
        if state.is_running {
            return Change::None;
        }
        let Some((key, mut state)) = self.keys.remove_entry(key) else {
            return Change::None;
        };
        let change = match &mut state.request {
            Some(request) => self.lines.place(&key, before, request, now),
            None => Change::None,
        };
        self.keys.insert(key, state);
        change
    }

    /// Makes the waiting keys ready that are due at `now`, and returns their number.
    pub(super) fn advance(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while let Some(first) = self.lines.waiting.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            let state = self.keys.get_mut(&key);
            if let Some(request) = state.and_then(|state| state.request.as_mut()) {
                self.lines.make_ready(&key, request);
                count += 1;
            }
        }
        count
    }

    /// Begins the run of the first key that is ready.
    pub(super) fn take(&mut self, now: Instant) -> Option<Run<K>> {
        let (_, key) = self.lines.ready.pop_first()?;
        let state = self.keys.get_mut(&key)?;
        let request = state.request.take()?;
        state.is_running = true;
        state.is_forgotten = false;
        let number = self.next_run;
        self.next_run += 1;
        self.runs.push((number, now));
        Some(Run {
            key,
            number,
            started: now,
            priority: request.priority,
            waited: now.saturating_duration_since(request.due()),
        })
    }

    /// Ends `run`. Places another run of the key that was requested during `run`.
    pub(super) fn done(&mut self, run: &Run<K>, now: Instant) -> Change {
        let is_this = |(number, _): &(u64, Instant)| *number == run.number;
        if let Some(found) = self.runs.iter().position(is_this) {
            self.runs.swap_remove(found);
        }
        let MapEntry::Occupied(mut entry) = self.keys.entry(Arc::clone(&run.key)) else {
            return Change::None;
        };
        let state = entry.get_mut();
        state.is_running = false;
        state.is_forgotten = false;
        match &mut state.request {
            Some(request) if !self.is_shutting_down || request.due() <= now => {
                self.lines.place(&run.key, *request, request, now)
            }
            _ => {
                entry.remove();
                Change::None
            }
        }
    }

    /// Ignores keys that are added from now on, and drops those that are not due.
    pub(super) fn shut_down(&mut self, now: Instant) {
        self.is_shutting_down = true;
        self.advance(now);
        for key in std::mem::take(&mut self.lines.waiting).into_values() {
            self.keys.remove(&key);
        }
    }

    /// Returns true if no key is ready, and none is running.
    pub(super) fn is_drained(&self) -> bool {
        self.lines.ready.is_empty() && self.runs.is_empty()
    }

    /// Counts the keys that are ready.
    pub(super) fn len(&self) -> usize {
        self.lines.ready.len()
    }

    /// Returns the time when the next waiting key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = self.lines.waiting.first_key_value();
        first.map(|((due, _), _)| *due)
    }

    /// Returns how often a key became ready since the last call.
    pub(super) fn take_entered(&mut self) -> u64 {
        std::mem::take(&mut self.lines.entered)
    }

    pub(super) fn load(&self, now: Instant) -> Load {
        let durations = || {
            let runs = self.runs.iter();
            runs.map(|(_, start)| now.saturating_duration_since(*start))
        };
        Load {
            depth: self.len(),
            unfinished: durations().sum(),
            longest: durations().max().unwrap_or_default(),
        }
    }
}

// === impl Lines ===

impl<K> Lines<K> {
    /// Creates a request that is in no line.
    fn request(&mut self, priority: i32, wanted_at: Instant) -> Request {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Request {
            sequence,
            priority,
            wanted_at,
            backoff_until: None,
            place: Place::Held,
        }
    }

    /// Puts a request into the line where it belongs at `now`. `before` is the request as its
    /// present line has it.
    fn place(
        &mut self,
        key: &Arc<K>,
        before: Request,
        request: &mut Request,
        now: Instant,
    ) -> Change {
        let due = request.due();
        let is_due = due <= now;
        match before.place {
            Place::Held => {}
            Place::Ready => {
                let (old, new) = (self.rank(&before), self.rank(request));
                if is_due && new == old {
                    return Change::None;
                }
                self.ready.remove(&old);
                if is_due {
                    self.ready.insert(new, Arc::clone(key));
                    return Change::None;
                }
            }
            Place::Waiting if before.due() == due && !is_due => return Change::None,
            Place::Waiting => {
                self.waiting.remove(&(before.due(), before.sequence));
            }
        }
        if is_due {
            self.make_ready(key, request);
            return Change::Ready;
        }
        request.place = Place::Waiting;
        self.waiting
            .insert((due, request.sequence), Arc::clone(key));
        Change::Due(due)
    }

    /// Puts a request that is in no line into the line of ready keys.
    fn make_ready(&mut self, key: &Arc<K>, request: &mut Request) {
        request.place = Place::Ready;
        self.ready.insert(self.rank(request), Arc::clone(key));
        self.entered += 1;
    }

    fn rank(&self, request: &Request) -> Rank {
        let nanoseconds = |duration: Duration| i128::try_from(duration.as_nanos());
        // Neither the lifetime of a program nor a useful ageing reaches 2^64 ns (580 years).
        const MOST: i128 = u64::MAX as i128;
        let due = request.due().saturating_duration_since(self.origin);
        let due = nanoseconds(due).unwrap_or(MOST);
        let ageing = nanoseconds(self.ageing).unwrap_or(MOST).min(MOST);
        let head_start = i128::from(request.priority) * ageing;
        (due - head_start, request.sequence)
    }
}

// === impl Request ===

impl Request {
    /// Returns the earliest time of the run: the requested time, but not before the
    /// end of the backoff.
    fn due(&self) -> Instant {
        match self.backoff_until {
            Some(end) => self.wanted_at.max(end),
            None => self.wanted_at,
        }
    }
}
