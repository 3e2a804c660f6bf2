//! The phases that are measured: watchers get in sync, objects are written, the last events come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;
use tokio::time::sleep;

use crate::shutdown::Shutdown;
use crate::tools::load::config::Config;
use crate::tools::load::config::Protocol;
use crate::tools::load::error::Error;
use crate::tools::load::progress::Progress;
use crate::tools::load::shared::SYNC_LIMIT;
use crate::tools::load::shared::Shared;
use crate::tools::load::usage::Sample;
use crate::tools::load::usage::Source;
use crate::tools::load::usage::Usage;
use crate::tools::load::usage::own_cpu_seconds;
use crate::tools::load::watch::receivers::Received;
use crate::tools::load::watch::receivers::Receivers;
use crate::tools::load::watch::storm::Lists;
use crate::tools::load::watch::storm::Storm;
use crate::tools::load::write::schedule::Schedule;
use crate::tools::load::write::writer::Writing;
use crate::tools::load::write::writer::Wrote;
use crate::tools::load::write::writer::write;

use super::peak::Peak;

/// How often it is looked how far everything is.
const TICK: Duration = Duration::from_millis(50);
/// Silence after which events that have not come are missed.
const SILENCE: Duration = Duration::from_secs(10);
/// The same after a signal; and the longest that is waited then, however much comes.
const SHORT_SILENCE: Duration = Duration::from_secs(2);
const SHORT_DRAIN: Duration = Duration::from_secs(8);
/// After the last event that is expected, so that one which comes twice is seen.
const SETTLED: Duration = Duration::from_millis(250);

/// A run under way.
pub(super) struct Running<'a> {
    pub(super) config: &'a Config,
    pub(super) shared: Arc<Shared>,
    pub(super) shutdown: &'a Shutdown,
    pub(super) source: Source,
    pub(super) schedule: Schedule,
    /// Nanoseconds of a step of the timeline.
    pub(super) step: u64,
}

/// What was measured.
pub(super) struct Measured {
    pub(super) wrote: Wrote,
    pub(super) received: Received,
    pub(super) lists: Option<Lists>,
    pub(super) usage: Result<Usage, String>,
    pub(super) all_synced: Duration,
    pub(super) expected: u64,
    pub(super) own_cpu_seconds: f64,
}

impl Running<'_> {
    pub(super) async fn measure(
        self,
        writing: Writing,
        progress: &mut Progress,
    ) -> Result<Measured, Error> {
        let before = self.source.sample().await;
        let receivers =
            Receivers::start(&self.shared, self.shutdown, self.step).map_err(Error::Thread)?;
        let all_synced = self.synced(progress).await?;
        let idle = self.source.sample().await;
        let own_before = own_cpu_seconds();
        let peak = Peak::start(&self.shared).map_err(Error::Thread)?;
        let storm = Storm::start(&self.shared, self.shutdown).map_err(Error::Thread)?;
        let wrote = self.written(writing, progress).await?;
        let expected = wrote.acknowledged * self.config.watchers_of_an_object();
        self.drained(expected, progress).await?;
        let own_cpu_seconds = own_cpu_seconds() - own_before;
        let after = self.source.sample().await;
        self.shared.stop();
        let peak = peak.finish().await.map_err(Error::Thread)?;
        let lists = storm.finish().await.map_err(Error::Thread)?;
        let received = receivers.finish(self.step).await.map_err(Error::Thread)?;
        let usage = match (before, idle, after) {
            (Ok(before), Ok(idle), Ok(after)) => {
                Ok(usage(before, idle, after, peak, received.tally.events))
            }
            (Err(problem), _, _) | (_, Err(problem), _) | (_, _, Err(problem)) => Err(problem),
        };
        Ok(Measured {
            wrote,
            received,
            lists,
            usage,
            all_synced,
            expected,
            own_cpu_seconds,
        })
    }

    fn check(&self) -> Result<(), Error> {
        match self.shared.failure() {
            None => Ok(()),
            Some(problem) => Err(Error::Refused(problem)),
        }
    }

    /// Waits until every watcher has seen every object.
    async fn synced(&self, progress: &mut Progress) -> Result<Duration, Error> {
        let started = Instant::now();
        let watchers = self.config.watchers;
        loop {
            self.check()?;
            if self.shutdown.is_draining() {
                return Err(Error::Interrupted);
            }
            let synced = self.shared.synced.load(Ordering::Relaxed);
            let slow = self.shared.slow.load(Ordering::Relaxed);
            if synced >= watchers as usize && slow >= self.config.slow_watchers {
                let took = started.elapsed();
                let seconds = took.as_secs_f64();
                progress.say(&format!(
                    "{watchers} watchers have seen all objects after {seconds:.2} s"
                ));
                return Ok(took);
            }
            if started.elapsed() > SYNC_LIMIT {
                return Err(self.not_synced(synced));
            }
            let done = synced as f64 / f64::from(watchers);
            progress.show("watchers", done, &format!("{synced} of {watchers}"));
            sleep(TICK / 5).await;
        }
    }

    fn not_synced(&self, synced: usize) -> Error {
        let a_connection = self.config.watchers.div_ceil(self.config.connections);
        let hint = match self.config.protocol {
            Protocol::Http2 if a_connection > 100 => format!(
                "; perhaps the server takes fewer than {a_connection} streams a connection: try more --connections"
            ),
            _ => String::new(),
        };
        Error::NotSynced {
            synced,
            watchers: self.config.watchers,
            seconds: SYNC_LIMIT.as_secs(),
            hint,
        }
    }

    /// Writes everything, or until a signal comes.
    async fn written(&self, writing: Writing, progress: &mut Progress) -> Result<Wrote, Error> {
        let shutdown = self.shutdown;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let mut wrote = std::pin::pin!(write(writing, shutdown));
        loop {
            tokio::select! {
                wrote = &mut wrote => {
                    self.check()?;
                    return Ok(wrote);
                }
                _ = ticks.tick() => {}
            }
            if shutdown.is_draining() {
                self.shared.cut_short();
            }
            let delivered = self.shared.delivered.load(Ordering::Relaxed);
            let done = started.elapsed().as_secs_f64() / self.config.duration.as_secs_f64();
            progress.show("writing", done, &format!("{delivered} events delivered"));
        }
    }

    /// Waits until everything has come, or nothing comes any more.
    async fn drained(&self, expected: u64, progress: &mut Progress) -> Result<(), Error> {
        let started = Instant::now();
        let mut last = (0, started);
        loop {
            self.check()?;
            let delivered = self.shared.delivered.load(Ordering::Relaxed);
            if delivered >= expected {
                sleep(SETTLED).await;
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            }
            let is_short = self.shutdown.is_draining();
            if is_short {
                // What is missing then is missing of a run that was not let to its end.
                self.shared.cut_short();
            }
            let silence = if is_short { SHORT_SILENCE } else { SILENCE };
            if last.1.elapsed() > silence {
                progress.say(&format!(
                    "{delivered} of {expected} events came, and then none for {silence:?}"
                ));
                return Ok(());
            }
            if is_short && started.elapsed() > SHORT_DRAIN {
                progress.say(&format!("{delivered} of {expected} events came until now"));
                return Ok(());
            }
            let done = delivered as f64 / expected as f64;
            progress.show(
                "waiting for the last events",
                done,
                &format!("{delivered} of {expected}"),
            );
            sleep(TICK / 5).await;
        }
    }
}

fn usage(before: Sample, idle: Sample, after: Sample, peak: u64, events: u64) -> Usage {
    // Less than nothing is what a server shows that was started again.
    let cpu_seconds = (after.cpu_seconds - idle.cpu_seconds).max(0.0);
    Usage {
        cpu_seconds,
        cpu_microseconds_per_event: match events {
            0 => 0.0,
            events => cpu_seconds * 1e6 / events as f64,
        },
        resident_bytes_before: before.resident_bytes,
        resident_bytes_idle: idle.resident_bytes,
        resident_bytes_peak: [before, idle, after]
            .iter()
            .fold(peak, |peak, sample| peak.max(sample.resident_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_told_for_each_event() {
        let sample = |cpu_seconds, resident_bytes| Sample {
            cpu_seconds,
            resident_bytes,
        };
        let told = usage(
            sample(1.0, 10),
            sample(2.0, 20),
            sample(4.0, 15),
            30,
            1_000_000,
        );
        assert_eq!(
            (told.cpu_seconds, told.cpu_microseconds_per_event),
            (2.0, 2.0)
        );
        assert_eq!(
            (
                told.resident_bytes_before,
                told.resident_bytes_idle,
                told.resident_bytes_peak
            ),
            (10, 20, 30)
        );
        let restarted = usage(sample(1.0, 10), sample(2.0, 20), sample(0.5, 15), 30, 0);
        assert_eq!(
            (restarted.cpu_seconds, restarted.cpu_microseconds_per_event),
            (0.0, 0.0)
        );
        let unseen = usage(sample(1.0, 10), sample(2.0, 20), sample(2.0, 15), 0, 1);
        assert_eq!(unseen.resident_bytes_peak, 20);
    }
}
