//! Counts and latencies of the events that a receiving thread got.

use crate::load::histogram::Histogram;

/// Counts and latencies of what all watchers of a thread received.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Latencies from the time when a write was due until its event was received.
    pub(crate) latency_from_schedule: Histogram,
    /// Latencies from a write's acknowledgement until its event was received; zero if the event
    /// came first.
    pub(crate) latency_from_acknowledgement: Histogram,
    pub(crate) events: u64,
    /// The time of the last event, in nanoseconds since the first write.
    pub(crate) last: u64,
    /// The bytes of the watches' bodies, since the first write.
    pub(crate) bytes: u64,
    /// The number of events that came before their write was acknowledged.
    pub(crate) before_acknowledgement: u64,
    pub(crate) bookmarks: u64,
    /// The number of events of objects that do not belong to the run.
    pub(crate) foreign: u64,
    /// Times from the cut of all connections until a watcher was live again: it had an event of a
    /// write after the cut.
    pub(crate) live: Histogram,
    /// How often a watcher had to start again without a version after the cut.
    pub(crate) expired_after_cut: u64,
    timeline: Vec<u64>,
    /// The length of a step of the timeline, in nanoseconds.
    step: u64,
}

impl Tally {
    pub(crate) fn new(step: u64) -> Self {
        Self {
            step: step.max(1),
            ..Self::default()
        }
    }

    /// Counts an event. All times are in nanoseconds since the first write: when the event was
    /// received, when its write was due, and when the write was acknowledged, if it was.
    pub(crate) fn record(&mut self, now: u64, scheduled: u64, acknowledged: Option<u64>) {
        self.events += 1;
        self.last = self.last.max(now);
        self.latency_from_schedule
            .record(now.saturating_sub(scheduled));
        match acknowledged.and_then(|at| now.checked_sub(at)) {
            Some(waited) => self.latency_from_acknowledgement.record(waited),
            None => {
                self.before_acknowledgement += 1;
                self.latency_from_acknowledgement.record(0);
            }
        }
        // The fallback is unreachable: no run is long enough to overflow `usize`.
        let at = usize::try_from(now / self.step).unwrap_or(usize::MAX);
        if at >= self.timeline.len() {
            self.timeline.resize(at + 1, 0);
        }
        self.timeline[at] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.latency_from_schedule.add(&other.latency_from_schedule);
        self.latency_from_acknowledgement
            .add(&other.latency_from_acknowledgement);
        self.events += other.events;
        self.last = self.last.max(other.last);
        self.bytes += other.bytes;
        self.before_acknowledgement += other.before_acknowledgement;
        self.bookmarks += other.bookmarks;
        self.foreign += other.foreign;
        self.live.add(&other.live);
        self.expired_after_cut += other.expired_after_cut;
        let length = self.timeline.len().max(other.timeline.len());
        self.timeline.resize(length, 0);
        for (count, more) in self.timeline.iter_mut().zip(&other.timeline) {
            *count += more;
        }
    }

    /// Returns the throughput as points: the start of each step of the timeline in seconds since
    /// the first write, and the events per second during the step.
    pub(crate) fn throughput(&self) -> Vec<(f64, f64)> {
        let step = self.step as f64 / 1e9;
        let points = self.timeline.iter().enumerate();
        points
            .map(|(index, count)| (index as f64 * step, *count as f64 / step))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_time_and_by_latency() {
        let mut tally = Tally::new(1_000_000_000);
        tally.record(500_000_000, 400_000_000, Some(450_000_000));
        tally.record(1_500_000_000, 1_400_000_000, Some(1_600_000_000));
        tally.record(1_500_000_000, 1_400_000_000, None);
        let mut other = Tally::new(1_000_000_000);
        other.record(3_100_000_000, 3_000_000_000, Some(3_100_000_000));
        tally.add(&other);
        assert_eq!(
            tally.throughput(),
            [(0.0, 1.0), (1.0, 2.0), (2.0, 0.0), (3.0, 1.0)]
        );
        assert_eq!((tally.events, tally.before_acknowledgement), (4, 2));
        let latency = tally.latency_from_acknowledgement.latency();
        assert_eq!((latency.count, latency.min, latency.max), (4, 0.0, 50.0));
        assert_eq!(tally.latency_from_schedule.latency().min, 100.0);
    }
}
