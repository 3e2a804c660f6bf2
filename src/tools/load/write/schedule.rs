//! The schedule of writes. It is fixed before the run, so that a slow server cannot delay the
//! writes and so hide its latency (coordinated omission).

use std::ops::Range;
use std::time::Duration;

/// The maximum number of concurrent writers.
const MAX_WRITERS: u32 = 64;

/// The order and the times of all writes. Writer `w` of `n` sends the writes numbered `w`,
/// `w + n`, `w + 2n`, and so on, and changes the objects with these numbers in turn. Only one
/// writer changes an object, so two writes to it are never in flight together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// The writes per second; `None` for as many as the server acknowledges.
    rate: Option<f64>,
    objects: u32,
    pub(crate) duration: Duration,
    /// With a rate, the number of the first write.
    first: u64,
}

/// One write of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScheduledWrite {
    /// The number of the write among all writes, from 0.
    pub(crate) number: u64,
    pub(crate) object: u32,
    /// The number of the write among the writes to its object; the creation is 0.
    pub(crate) sequence: u32,
}

impl Schedule {
    pub(crate) fn new(rate: Option<f64>, objects: u32, duration: Duration) -> Self {
        Self {
            rate,
            objects,
            duration,
            first: 0,
        }
    }

    /// Returns the schedule of the writes that follow this schedule to its end.
    pub(crate) fn followed_by(self, duration: Duration) -> Self {
        Self {
            first: self.end().unwrap_or(0),
            duration,
            ..self
        }
    }

    pub(crate) fn writers(&self) -> u32 {
        self.objects.min(MAX_WRITERS)
    }

    /// Returns the `index`th write of `writer`.
    pub(crate) fn write(&self, writer: u32, index: u32) -> ScheduledWrite {
        let writers = self.writers();
        let own = (writer..self.objects).step_by(writers as usize).len();
        // There are no more writers than objects, so each writer has at least one object. The count
        // fits, because `objects` is a `u32`.
        let own = (own as u32).max(1);
        ScheduledWrite {
            number: u64::from(index) * u64::from(writers) + u64::from(writer),
            object: writer + index % own * writers,
            sequence: index / own + 1,
        }
    }

    /// Returns the time when write `number` is due, measured from the first write; `None`
    /// without a rate.
    pub(crate) fn due(&self, number: u64) -> Option<Duration> {
        let rate = self.rate?;
        let before = number.saturating_sub(self.first);
        Some(Duration::from_secs_f64(before as f64 / rate))
    }

    /// Returns the numbers of all writes; `None` without a rate.
    pub(crate) fn numbers(&self) -> Option<Range<u64>> {
        Some(self.first..self.end()?)
    }

    /// Returns the number after that of the last write; `None` without a rate.
    fn end(&self) -> Option<u64> {
        let rate = self.rate?;
        Some(self.first + (rate * self.duration.as_secs_f64()).ceil() as u64)
    }

    /// Returns the number of writes that the writer of write `number` still has to send, including
    /// write `number`. It is 1 without a rate.
    pub(crate) fn remaining_from(&self, number: u64) -> u64 {
        let end = self.end().unwrap_or(number + 1);
        end.saturating_sub(number)
            .div_ceil(u64::from(self.writers()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn every_number_is_written_once_and_every_object_in_order() {
        for objects in [1, 20, 64, 65, 200] {
            let schedule = Schedule::new(None, objects, Duration::from_secs(1));
            let mut numbers = Vec::new();
            let mut last = HashMap::new();
            for writer in 0..schedule.writers() {
                for index in 0..40 {
                    let write = schedule.write(writer, index);
                    numbers.push(write.number);
                    assert!(write.object < objects, "{write:?}");
                    let before = last.insert(write.object, (writer, write.sequence));
                    let expected = before.map_or(1, |(_, sequence)| sequence + 1);
                    assert_eq!(write.sequence, expected, "{write:?}");
                    // If two writers changed the same object, one writer could overtake the other.
                    assert!(before.is_none_or(|(other, _)| other == writer));
                }
            }
            assert_eq!(last.len(), objects as usize);
            numbers.sort_unstable();
            let all: Vec<_> = (0..u64::from(schedule.writers()) * 40).collect();
            assert_eq!(numbers, all);
        }
    }

    #[test]
    fn due_times_do_not_depend_on_the_server() {
        let second = Duration::from_secs(1);
        let table = [
            (70.0, 30, 2_100, 70, Some(second)),
            (0.5, 10, 5, 1, Some(2 * second)),
            (1_000.0, 1, 1_000, 1, Some(Duration::from_millis(1))),
            (3.0, 1, 3, 3, Some(second)),
        ];
        for (rate, seconds, writes, number, due) in table {
            let schedule = Schedule::new(Some(rate), 20, seconds * second);
            assert_eq!(schedule.numbers(), Some(0..writes), "{rate}");
            assert_eq!(schedule.due(number), due, "{rate}");
            let last = schedule.due(writes - 1).expect("a scheduled write");
            assert!(last < seconds * second);
            let next = schedule.followed_by(2 * second);
            let last = writes + (2.0 * rate).ceil() as u64;
            assert_eq!(next.numbers(), Some(writes..last), "{rate}");
            assert_eq!(next.due(writes + number), due, "{rate}");
        }
        // With ten writes and four writers, the second writer has the writes 1, 5 and 9.
        let ten = Schedule::new(Some(10.0), 4, second);
        let left: Vec<_> = [1, 5, 9, 3, 7, 10]
            .map(|number| ten.remaining_from(number))
            .into();
        assert_eq!(left, [3, 2, 1, 2, 1, 0]);
        let fastest = Schedule::new(None, 20, second);
        assert_eq!((fastest.numbers(), fastest.due(1)), (None, None));
        assert_eq!(fastest.followed_by(second), fastest);
        assert_eq!(fastest.remaining_from(7), 1);
    }
}
