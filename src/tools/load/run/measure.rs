//! The measured phases of a run: the watchers get in sync, the writers run, and the last events
//! arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::Client;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::peak;
use super::resume::{ResumePhase, ResumeStats};
use crate::load::config::Protocol;
use crate::load::error::Error;
use crate::load::progress::Progress;
use crate::load::run_state::{RunState, SYNC_LIMIT};
use crate::load::usage::{Sample, Usage, UsageSource, own_cpu_seconds, sample_all};
use crate::load::watch::list_storm::{ListStorm, Lists};
use crate::load::watch::receivers::{ReceiverStats, Receivers};
use crate::load::write::writer::{WriteJob, WriteStats, write};

/// The interval between checks of the writes' progress; other phases
/// are checked five times as often.
const TICK: Duration = Duration::from_millis(50);
/// If no event arrives for this time after the last write, the outstanding events count as missed.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// If no event arrives for this time after a signal, the outstanding events count as missed.
const MAX_SILENCE_AFTER_SIGNAL: Duration = Duration::from_secs(2);
/// The longest wait for outstanding events after a signal, even if events still arrive.
const MAX_DRAIN_AFTER_SIGNAL: Duration = Duration::from_secs(8);
/// The time that the watches stay open after the last expected event, so that
/// duplicates of it are noticed.
const DUPLICATE_WAIT: Duration = Duration::from_millis(250);

/// Everything that the measured phases of a run need.
pub(super) struct Measurement<'a> {
    pub(super) run_state: Arc<RunState>,
    pub(super) shutdown: &'a Shutdown,
    /// The sources of the servers' CPU time and memory, from [`find_sources`].
    pub(super) sources: Vec<UsageSource>,
    /// The length of a step of the timeline, in nanoseconds.
    pub(super) step: u64,
}

/// Finds the source of the watched server's figures, and then that of the server that takes the
/// writes, if that is another one.
pub(super) async fn find_sources(
    run_state: &RunState,
    writer: &Client,
) -> Result<Vec<UsageSource>, Error> {
    let config = &run_state.config;
    let (client, collection) = (&run_state.client, &run_state.collection);
    let mut sources = Vec::new();
    if let Some(written) = &config.written
        && writer.server() != client.server()
    {
        sources.push(UsageSource::find(written, writer, collection, "--write-").await?);
    }
    let watched = UsageSource::find(&config.watched, client, collection, "--").await?;
    sources.insert(0, watched);
    Ok(sources)
}

/// The results of the measured phases.
pub(super) struct RunStats {
    pub(super) write_stats: WriteStats,
    pub(super) received: ReceiverStats,
    pub(super) lists: Option<Lists>,
    /// The usage of the watched server.
    pub(super) usage: Option<Result<Usage, String>>,
    /// The usage of the server that takes the writes; `None` if it is the watched server.
    pub(super) write_usage: Option<Result<Usage, String>>,
    pub(super) all_synced: Duration,
    pub(super) expected: u64,
    pub(super) own_cpu_seconds: f64,
    /// The resume phase; `None` if there was none.
    pub(super) resume: Option<ResumeStats>,
}

impl Measurement<'_> {
    pub(super) async fn measure(
        self,
        job: WriteJob,
        progress: &mut Progress,
    ) -> Result<RunStats, Error> {
        let before = sample_all(&self.sources).await;
        let receivers =
            Receivers::start(&self.run_state, self.shutdown, self.step).map_err(Error::Thread)?;
        let all_synced = self.wait_until_synced(progress).await?;
        let idle = sample_all(&self.sources).await;
        let own_before = own_cpu_seconds();
        let peak = peak::start(&self.run_state).map_err(Error::Thread)?;
        let list_storm = ListStorm::start(&self.run_state, self.shutdown).map_err(Error::Thread)?;
        let write_stats = self.run_writes(job.clone(), progress).await?;
        let expected = write_stats.acknowledged * self.run_state.config.watchers_of_an_object();
        self.wait_until_drained(expected, progress).await?;
        let own_cpu_seconds = own_cpu_seconds() - own_before;
        let after = sample_all(&self.sources).await;
        let resume = self
            .resume_if_wanted(job, &write_stats, &after, progress)
            .await?;
        self.run_state.stop();
        let peak = peak.finish().await.map_err(Error::Thread)?;
        let lists = list_storm.finish().await.map_err(Error::Thread)?;
        let received = receivers.finish(self.step).await.map_err(Error::Thread)?;
        let events = received.tally.events;
        let samples = before.into_iter().zip(idle).zip(after);
        // Only the memory of the watched server was sampled in between.
        let samples = samples.zip([peak, 0]);
        let mut usages =
            samples.map(|(((before, idle), after), peak)| usage(before, idle, after, peak, events));
        Ok(RunStats {
            write_stats,
            received,
            lists,
            usage: usages.next(),
            write_usage: usages.next(),
            all_synced,
            expected,
            own_cpu_seconds,
            resume,
        })
    }

    /// Runs the resume phase if the configuration has one and the writes before it were complete.
    async fn resume_if_wanted(
        &self,
        job: WriteJob,
        first: &WriteStats,
        before: &[Result<Sample, String>],
        progress: &mut Progress,
    ) -> Result<Option<ResumeStats>, Error> {
        let config = &self.run_state.config;
        // After a write with an unknown outcome, the next number of its object is not known.
        let is_complete = first.given_up == 0 && !self.run_state.is_writing_over();
        if !config.resume || !is_complete {
            return Ok(None);
        }
        let phase = ResumePhase {
            run_state: &self.run_state,
            shutdown: self.shutdown,
            sources: &self.sources,
        };
        let resume = phase.run(job, first, before, progress).await?;
        let writes = first.acknowledged + resume.write_stats.acknowledged;
        let expected = writes * config.watchers_of_an_object();
        self.wait_until_drained(expected, progress).await?;
        Ok(Some(resume))
    }

    /// Waits until every watcher has received every object that it selects and all slow watches are
    /// open. Returns how long that took.
    async fn wait_until_synced(&self, progress: &mut Progress) -> Result<Duration, Error> {
        let started = Instant::now();
        let watchers = self.run_state.config.watchers;
        loop {
            self.run_state.check()?;
            if self.shutdown.is_draining() {
                return Err(Error::Interrupted);
            }
            let synced = self.run_state.synced.load(Ordering::Relaxed);
            let slow = self.run_state.open_slow_watches.load(Ordering::Relaxed);
            if synced >= watchers as usize && slow >= self.run_state.config.slow_watchers {
                let took = started.elapsed();
                let seconds = took.as_secs_f64();
                progress.print_line(&format!(
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
        let config = &self.run_state.config;
        let a_connection = config.watchers.div_ceil(config.connections);
        let hint = match config.protocol {
            Protocol::Http2 if a_connection > 100 => format!(
                "; the server may allow fewer than {a_connection} streams per connection: try more --connections"
            ),
            _ => String::new(),
        };
        let (watchers, seconds) = (config.watchers, SYNC_LIMIT.as_secs());
        Error::Refused(format!(
            "{synced} of {watchers} watchers have seen all objects after {seconds} s{hint}"
        ))
    }

    /// Runs the writers until the end of the schedule or a signal.
    async fn run_writes(
        &self,
        job: WriteJob,
        progress: &mut Progress,
    ) -> Result<WriteStats, Error> {
        let (shutdown, duration) = (self.shutdown, self.run_state.config.duration);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let start = self.run_state.start_measuring();
        let mut write_stats = std::pin::pin!(write(job, start, shutdown));
        loop {
            tokio::select! {
                write_stats = &mut write_stats => {
                    self.run_state.check()?;
                    return Ok(write_stats);
                }
                _ = ticks.tick() => {}
            }
            if shutdown.is_draining() {
                self.run_state.cut_short();
            }
            let delivered = self.run_state.delivered.load(Ordering::Relaxed);
            let done = started.elapsed().as_secs_f64() / duration.as_secs_f64();
            progress.show("writing", done, &format!("{delivered} events delivered"));
        }
    }

    /// Waits until all expected events have arrived, or none has arrived for some time.
    async fn wait_until_drained(
        &self,
        expected: u64,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let mut last = (0, started);
        loop {
            self.run_state.check()?;
            let delivered = self.run_state.delivered.load(Ordering::Relaxed);
            if delivered >= expected {
                sleep(DUPLICATE_WAIT).await;
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            }
            let is_short = self.shutdown.is_draining();
            let silence = if is_short {
                // Marks the run as interrupted, because events may be missing only because of the
                // signal.
                self.run_state.cut_short();
                MAX_SILENCE_AFTER_SIGNAL
            } else {
                MAX_SILENCE
            };
            if last.1.elapsed() > silence {
                progress.print_line(&format!(
                    "{delivered} of {expected} events arrived, and then none for {silence:?}"
                ));
                return Ok(());
            }
            if is_short && started.elapsed() > MAX_DRAIN_AFTER_SIGNAL {
                progress.print_line(&format!("{delivered} of {expected} events arrived so far"));
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

/// Computes the usage between three samples. Fails if one of them is missing.
fn usage(
    before: Result<Sample, String>,
    idle: Result<Sample, String>,
    after: Result<Sample, String>,
    peak: u64,
    events: u64,
) -> Result<Usage, String> {
    let (before, idle, after) = (before?, idle?, after?);
    // The difference is negative if the server was restarted during the run.
    let cpu_seconds = (after.cpu_seconds - idle.cpu_seconds).max(0.0);
    Ok(Usage {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_divided_by_events() {
        let sample = |cpu_seconds, resident_bytes| {
            Ok(Sample {
                cpu_seconds,
                resident_bytes,
            })
        };
        let usage = |before, idle, after, peak, events| {
            super::usage(before, idle, after, peak, events).expect("three samples")
        };
        let usage_of_run = usage(
            sample(1.0, 10),
            sample(2.0, 20),
            sample(4.0, 15),
            30,
            1_000_000,
        );
        assert_eq!(
            (
                usage_of_run.cpu_seconds,
                usage_of_run.cpu_microseconds_per_event
            ),
            (2.0, 2.0)
        );
        assert_eq!(
            (
                usage_of_run.resident_bytes_before,
                usage_of_run.resident_bytes_idle,
                usage_of_run.resident_bytes_peak
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
        let gone = super::usage(sample(1.0, 1), sample(1.0, 1), Err("gone".to_owned()), 0, 1);
        assert_eq!(gone, Err("gone".to_owned()));
    }
}
