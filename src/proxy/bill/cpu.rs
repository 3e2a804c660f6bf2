//! CPU time: that of clients by samples, and that of the process and of its threads as the kernel
//! counts it. For a sample, a poll is timed with the clock of its thread.
//!
//! A thread reads its clock for one of 32 polls on average, at random, and charges 32 times what the
//! poll took. The clock is a system call of half a microsecond, so reading it for each poll would cost
//! more than many polls. One of 256 is too few: the sum of 20 s was wrong by a tenth.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// On average, one poll of this number is timed.
const POLLS_PER_SAMPLE: u32 = 32;

thread_local! {
    /// The number of polls of this thread until the next one is timed, itself included.
    static UNTIL_SAMPLE: Cell<u32> = const { Cell::new(POLLS_PER_SAMPLE) };
}

/// The CPU time of something, such as a connection or a request. It may run on several threads.
#[derive(Debug, Default)]
pub struct CpuAccount {
    nanoseconds: AtomicU64,
}

// === impl CpuAccount ===

impl CpuAccount {
    /// Returns the CPU time that was charged.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// Returns the CPU time that was charged, and makes it 0.
    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.swap(0, Ordering::Relaxed))
    }

    /// Charges CPU time.
    pub fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Runs `poll`, and charges its CPU time if it is sampled. A poll within another one that is
    /// measured is charged twice, so only the outer one should be measured.
    pub fn measure<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.measure_by(thread_time, poll)
    }

    /// Like [`CpuAccount::measure`], with another clock.
    fn measure_by<T>(&self, clock: impl Fn() -> Duration, poll: impl FnOnce() -> T) -> T {
        if !is_sampled() {
            return poll();
        }
        let before = clock();
        let polled = poll();
        let took = clock().saturating_sub(before);
        self.add(took.saturating_mul(POLLS_PER_SAMPLE));
        polled
    }
}

/// Returns the CPU time of the process. Its threads are included, and those that have ended.
pub fn process_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the CPU time of the threads that serve clients: those with `serving` at the beginning of
/// their names. They live as long as the process. Returns `None` if no thread has such a name, as
/// in the demo, or if the system does not report the times.
pub fn serving_time(serving: &str) -> Option<Duration> {
    time_of_threads(Path::new("/proc/self/task"), serving)
}

/// Returns the CPU time of the threads in the folder `tasks`, as [`serving_time`] does.
fn time_of_threads(tasks: &Path, serving: &str) -> Option<Duration> {
    let mut nanoseconds = 0_u64;
    for task in fs::read_dir(tasks).ok()?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file));
        // A thread may end between two of these calls.
        let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        if name.starts_with(serving) {
            // The first number is the time on a CPU, in nanoseconds.
            let time = times.split_whitespace().next();
            let time: u64 = time.and_then(|time| time.parse().ok()).unwrap_or_default();
            nanoseconds = nanoseconds.saturating_add(time);
        }
    }
    // It is 0 if the kernel does not count.
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns true for one of [`POLLS_PER_SAMPLE`] calls of a thread, on average.
fn is_sampled() -> bool {
    UNTIL_SAMPLE.with(|until| {
        let left = until.get() - 1;
        let is_sampled = left == 0;
        until.set(if is_sampled {
            // All numbers below twice the average are equally likely, so no rhythm of the polls can
            // hide from the samples.
            rand::random_range(1..2 * POLLS_PER_SAMPLE)
        } else {
            left
        });
        is_sampled
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that only polls move.
    #[derive(Default)]
    struct FakeClock(Cell<Duration>);

    impl FakeClock {
        fn work(&self, time: Duration) {
            self.0.set(self.0.get() + time);
        }
    }

    #[test]
    fn the_samples_of_many_polls_add_up_to_what_they_took() {
        let clock = FakeClock::default();
        let [short, long] = [1, 20].map(Duration::from_micros);
        let accounts = [CpuAccount::default(), CpuAccount::default()];
        let polls = 200_000;
        for _ in 0..polls {
            for (account, time) in accounts.iter().zip([short, long]) {
                account.measure_by(|| clock.0.get(), || clock.work(time));
            }
        }
        for (account, time) in accounts.iter().zip([short, long]) {
            let ratio = account.total().as_secs_f64() / (time * polls).as_secs_f64();
            assert!((ratio - 1.0).abs() < 0.1, "{time:?}: {ratio}");
        }
        let total = accounts[0].total();
        assert_eq!(accounts[0].take(), total);
        assert_eq!(accounts[0].total(), Duration::ZERO);
    }

    #[test]
    fn a_poll_that_is_not_sampled_reads_no_clock() {
        let account = CpuAccount::default();
        let reads = Cell::new(0_u32);
        let clock = || {
            reads.set(reads.get() + 1);
            Duration::ZERO
        };
        let polls = 64_000;
        for _ in 0..polls {
            account.measure_by(clock, || ());
        }
        let samples = f64::from(reads.get()) / 2.0;
        let expected = f64::from(polls) / f64::from(POLLS_PER_SAMPLE);
        assert!((samples / expected - 1.0).abs() < 0.1, "{samples}");
    }

    #[test]
    fn the_time_of_the_serving_threads_is_that_without_the_others() {
        let tasks = tempfile::tempdir().expect("a temporary directory");
        for (task, name, time) in [
            ("1", "kubefan", "1000 5 3"),
            ("2", "serve-0", "20000 5 3"),
            ("3", "serve-1", "20000 5 3"),
            ("4", "tokio-rt-worker", "300000 5 3"),
        ] {
            let task = tasks.path().join(task);
            fs::create_dir(&task).expect("a directory");
            fs::write(task.join("comm"), format!("{name}\n")).expect("a file");
            fs::write(task.join("schedstat"), format!("{time}\n")).expect("a file");
        }
        // A thread that has just ended.
        fs::create_dir(tasks.path().join("5")).expect("a directory");
        let expected = Some(Duration::from_nanos(40_000));
        assert_eq!(time_of_threads(tasks.path(), "serve-"), expected);
        assert_eq!(time_of_threads(tasks.path(), "none-"), None);
        let uncounted = tasks.path().join("6");
        fs::create_dir(&uncounted).expect("a directory");
        fs::write(uncounted.join("comm"), "idle-0\n").expect("a file");
        fs::write(uncounted.join("schedstat"), "0 0 0\n").expect("a file");
        assert_eq!(time_of_threads(tasks.path(), "idle-"), None);
        assert_eq!(time_of_threads(&tasks.path().join("gone"), "serve-"), None);
    }

    #[test]
    fn the_clocks_go_forward() {
        let (thread, process) = (thread_time(), process_time());
        let mut sum = 0_u64;
        while thread_time() <= thread {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_time() > process);
    }
}
