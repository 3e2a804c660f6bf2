//! Counts: what is counted for a client and an operation, in total and in the last minutes.

use std::mem;
use std::ops::AddAssign;
use std::time::Duration;

/// The period of the shorter window.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
/// The period of the longer window.
const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Bytes of an answer that weigh as much as one request.
const BYTES_PER_REQUEST: f64 = 16_384.0;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bill) enum Count {
    /// Requests, refused ones included.
    Requests,
    /// Requests that a cache answered.
    Hits,
    /// Requests that were forwarded to the API server.
    Forwards,
    /// Requests that kubefan refused itself.
    Refusals,
    /// Answered reads of the most recent state: GETs, and LISTs without a continue token, that have
    /// no resource version. A 404 is an answer; other errors are none.
    Unversioned,
    /// Answered requests that begin a list of their selection: LISTs without a continue token, and
    /// WATCHes with `sendInitialEvents=true`.
    Lists,
    /// Requests that were forwarded because no cache has a media type that their client accepts.
    OtherFormat,
    /// Objects in the answers to LISTs.
    Objects,
    /// Bytes of bodies of answers.
    Bytes,
    /// Events of watches, including initial events.
    Events,
    /// Watches that were opened.
    WatchesOpened,
    /// Watches that have ended.
    WatchesEnded,
    /// Watches that ended within [`SHORT_WATCH`](super::open::SHORT_WATCH) after their start.
    ShortWatches,
    /// Microseconds for which requests waited for a right, a cache or a proof.
    Waited,
    /// Answers with 401.
    Unauthorized,
    /// Answers with 403.
    Forbidden,
    /// Answers with 410, and watches that ended with 410 in their stream.
    Gone,
    /// Answers with 429.
    TooMany,
    /// Answers that were broken off because their client read too slowly.
    Stalls,
    /// Nanoseconds of kubefan's CPU time.
    Cpu,
    /// Requests that the API server would have got.
    SavedRequests,
    /// Objects in lists that the API server would have sent.
    SavedObjects,
    /// Watch events that the API server would have sent.
    SavedEvents,
    /// Seats that the API server would have given to requests.
    SavedSeats,
    /// Nanoseconds of CPU time that the API server would have used, by estimate.
    SavedCpu,
}

/// A number for each [`Count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::bill) struct Counts([u64; Count::NUMBER]);

/// Counts in total, in the last minute and in the last ten minutes.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// When counting began, after the start of the bill.
    since: Duration,
    /// The counts before the current minute.
    earlier: Counts,
    minute: Window,
    /// Has nothing of the current minute: an added request changes the memory of one window only.
    ten_minutes: Window,
}

/// The counts of the current period and of the one before it. Together they approximate the counts
/// of the last period: the earlier ones are taken as evenly spread over their period, or over the
/// part of it in which they were counted.
#[derive(Clone, Debug, Default)]
struct Window {
    /// The number of the current period.
    number: u64,
    current: Counts,
    previous: Counts,
}

// === impl Count, Counts ===

impl Count {
    /// The number of counts.
    const NUMBER: usize = Self::SavedCpu as usize + 1;
}

impl Counts {
    /// Returns one count.
    pub(in crate::bill) fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Adds `number` to one count.
    pub(in crate::bill) fn add(&mut self, count: Count, number: u64) {
        let sum = &mut self.0[count as usize];
        *sum = sum.saturating_add(number);
    }

    /// Returns the counts with `number` added to one of them.
    #[must_use]
    pub(in crate::bill) fn with(mut self, count: Count, number: u64) -> Self {
        self.add(count, number);
        self
    }

    /// Returns true if all counts are 0.
    pub(in crate::bill) fn is_zero(&self) -> bool {
        self.0.iter().all(|number| *number == 0)
    }

    /// Returns how much the counts weigh when it is decided which rows are kept. One request weighs
    /// 1; bytes are converted to requests. CPU time weighs nothing: one sample counts for many polls,
    /// so chance would decide.
    pub(super) fn weight(&self) -> f64 {
        self.get(Count::Requests) as f64 + self.get(Count::Bytes) as f64 / BYTES_PER_REQUEST
    }

    /// Multiplies one count by `factor`, and rounds it.
    pub(in crate::bill) fn scale(&mut self, count: Count, factor: f64) {
        let number = &mut self.0[count as usize];
        *number = (*number as f64 * factor).round() as u64;
    }

    /// Returns `share` of the counts, rounded.
    fn share(&self, share: f64) -> Self {
        Self(self.0.map(|number| (number as f64 * share).round() as u64))
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        for (sum, number) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(number);
        }
    }
}

// === impl Windows, Window ===

impl Windows {
    /// Begins to count at the time `since` after the start of the bill.
    pub(super) fn new(since: Duration) -> Self {
        Self {
            since,
            earlier: Counts::default(),
            minute: Window::default(),
            ten_minutes: Window::default(),
        }
    }

    /// Returns when counting began.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// Adds `counts` at the time `at` after the start of the bill.
    pub(super) fn add(&mut self, counts: &Counts, at: Duration) {
        let number = number_of(at, MINUTE);
        if number > self.minute.number {
            self.earlier += &self.minute.current;
            self.ten_minutes = self.ten_minutes_with_current();
            self.minute.advance(number);
        }
        self.minute.current += counts;
    }

    /// Returns the counts since the start.
    pub(super) fn total(&self) -> Counts {
        let mut total = self.earlier;
        total += &self.minute.current;
        total
    }

    /// Returns the counts of the minute before `at`.
    pub(super) fn minute(&self, at: Duration) -> Counts {
        self.minute.clone().sum(self.since, at, MINUTE)
    }

    /// Returns the counts of the ten minutes before `at`.
    pub(super) fn ten_minutes(&self, at: Duration) -> Counts {
        self.ten_minutes_with_current()
            .sum(self.since, at, TEN_MINUTES)
    }

    /// Returns the longer window with the counts of the current minute.
    fn ten_minutes_with_current(&self) -> Window {
        let mut window = self.ten_minutes.clone();
        let minutes = TEN_MINUTES.as_secs() / MINUTE.as_secs();
        window.advance(self.minute.number / minutes);
        window.current += &self.minute.current;
        window
    }
}

impl Window {
    /// Makes the period `number` the current one. Does nothing if it is not a later one: threads
    /// read the clock before they take the lock.
    fn advance(&mut self, number: u64) {
        match number.saturating_sub(self.number) {
            0 => return,
            1 => self.previous = mem::take(&mut self.current),
            _ => {
                self.previous = Counts::default();
                self.current = Counts::default();
            }
        }
        self.number = number;
    }

    /// Returns the counts of the period before `at`. Counting began at the time `since`.
    fn sum(mut self, since: Duration, at: Duration, period: Duration) -> Counts {
        let number = number_of(at, period);
        self.advance(number);
        let current = period.as_secs_f64() * number as f64;
        let previous = since.as_secs_f64().max(current - period.as_secs_f64());
        let mut sum = self.current;
        if previous < current {
            let first = previous.max(at.as_secs_f64() - period.as_secs_f64());
            let share = (current - first) / (current - previous);
            sum += &self.previous.share(share);
        }
        sum
    }
}

/// Returns the number of the period that `at` is in.
fn number_of(at: Duration, period: Duration) -> u64 {
    at.as_secs() / period.as_secs()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn requests(number: u64) -> Counts {
        Counts::default().with(Count::Requests, number)
    }

    #[test]
    fn a_steady_rate_is_seen_in_both_windows() {
        let mut windows = Windows::new(Duration::ZERO);
        for second in 0..1_800 {
            windows.add(&requests(5), Duration::from_secs(second));
        }
        for (at, minute, ten_minutes) in [
            (1_799, 300, 3_000),
            // Nothing is added after this, so the counts fall.
            (1_830, 150, 2_850),
            (1_860, 0, 2_700),
            (3_000, 0, 0),
        ] {
            let at = Duration::from_secs(at);
            let found = [windows.minute(at), windows.ten_minutes(at)];
            let found = found.map(|counts| counts.get(Count::Requests));
            for (found, expected) in found.into_iter().zip([minute, ten_minutes]) {
                assert!(found.abs_diff(expected) <= 5, "{at:?}: {found}, {expected}");
            }
        }
        assert_eq!(windows.total().get(Count::Requests), 9_000);
    }

    #[test]
    fn a_row_that_began_within_a_window_has_all_of_its_counts() {
        let mut windows = Windows::new(Duration::from_secs(50));
        for second in 50..=170 {
            windows.add(&requests(5), Duration::from_secs(second));
            let at = Duration::from_secs(second);
            let found = windows.minute(at).get(Count::Requests);
            let expected = 5 * (second - 49).min(60);
            assert!(
                found.abs_diff(expected) <= 5,
                "{second}: {found}, {expected}"
            );
            let all = windows.ten_minutes(at).get(Count::Requests);
            assert_eq!(all, 5 * (second - 49), "{second}");
        }
    }

    #[test]
    fn bytes_weigh_as_requests_and_cpu_time_weighs_nothing() {
        for (count, number) in [(Count::Requests, 10), (Count::Bytes, 163_840)] {
            let weight = Counts::default().with(count, number).weight();
            assert!((weight - 10.0).abs() < 1e-9, "{count:?}: {weight}");
        }
        for count in [Count::Objects, Count::Cpu] {
            assert_eq!(Counts::default().with(count, 10).weight(), 0.0, "{count:?}");
        }
    }

    proptest! {
        /// The counts of the current minute are added to the longer window and to the total later.
        #[test]
        fn the_counts_are_those_of_windows_that_get_each_of_them(
            since in 0..700_u64,
            // Threads may be late.
            steps in vec((0..90_u64, 0..3_u64), 0..100),
            pause in prop_oneof![Just(0), 0..2_000_u64],
        ) {
            let start = Duration::from_secs(since);
            let mut windows = Windows::new(start);
            let (mut minute, mut ten_minutes) = (Window::default(), Window::default());
            let mut latest = start;
            for (step, late) in &steps {
                latest += Duration::from_secs(*step);
                let at = latest.saturating_sub(Duration::from_secs(*late));
                windows.add(&requests(1), at);
                for (window, period) in [(&mut minute, MINUTE), (&mut ten_minutes, TEN_MINUTES)] {
                    window.advance(number_of(at, period));
                    window.current += &requests(1);
                }
            }
            prop_assert_eq!(windows.total(), requests(steps.len() as u64));
            let at = latest + Duration::from_secs(pause);
            prop_assert_eq!(windows.minute(at), minute.sum(start, at, MINUTE));
            prop_assert_eq!(windows.ten_minutes(at), ten_minutes.sum(start, at, TEN_MINUTES));
        }

        #[test]
        fn a_window_has_all_of_its_last_period_and_nothing_older_than_two(
            mut times in vec(0..400_u64, 0..100),
        ) {
            times.sort_unstable();
            let mut windows = Windows::new(Duration::ZERO);
            for time in &times {
                windows.add(&requests(1), Duration::from_secs(*time));
            }
            let last = times.last().copied().unwrap_or_default();
            let found = windows.minute(Duration::from_secs(last)).get(Count::Requests);
            let within = |seconds: u64| {
                times.iter().filter(|time| *time + seconds > last).count() as u64
            };
            // The part of the current period is exact, and the one before it is spread evenly.
            let in_period = within(last % 60 + 1);
            prop_assert!(found >= in_period, "{found} < {in_period}");
            prop_assert!(found <= within(120), "{found} > {}", within(120));
        }
    }
}
