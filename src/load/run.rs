//! The phases of a run, and its report.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;
use tokio::time::sleep;

use crate::shutdown::Shutdown;
use crate::upstream::Client;
use crate::upstream::Discovery;

use super::Config;
use super::Error;
use super::Progress;
use super::Protocol;
use super::Rate;
use super::Report;
use super::SelectorTemplate;
use super::checker::Faults;
use super::clock::nanoseconds;
use super::histogram::Histogram;
use super::objects::Objects;
use super::receivers::Received;
use super::receivers::Receivers;
use super::report::Events;
use super::report::Run;
use super::report::Settings;
use super::report::Watches;
use super::report::Writes;
use super::schedule::Schedule;
use super::shared::SYNC_LIMIT;
use super::shared::Shared;
use super::stage::Stage;
use super::storm::Storm;
use super::target;
use super::target::failed;
use super::usage::Sample;
use super::usage::Source;
use super::usage::Usage;
use super::writer::Writing;
use super::writer::Wrote;
use super::writer::write;

/// How often it is looked how far everything is.
const TICK: Duration = Duration::from_millis(50);
/// How often the server's memory is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// Silence after which events that have not come are missed.
const SILENCE: Duration = Duration::from_secs(10);
/// The same after a signal.
const SHORT_SILENCE: Duration = Duration::from_secs(2);
/// Files that are open besides the connections.
const OTHER_FILES: u64 = 64;
/// Steps of the timeline.
const STEPS: u32 = 100;
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// Tests the server, and then the one that it is compared with. A drain of `shutdown` ends it early, with the
/// report of what was until then; either way nothing is left on the server.
///
/// # Errors
///
/// When there is nothing to report; what was made on the server is deleted then, too.
pub async fn run(
    config: &Config,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<Report, Error> {
    let mut runs = vec![run_one(config, progress, shutdown).await?];
    if let Some(compared) = &config.compared
        && !shutdown.is_draining()
    {
        let mut config = config.clone();
        config.watched = compared.clone();
        runs.push(run_one(&config, progress, shutdown).await?);
    }
    Ok(Report::new(runs))
}

/// A run under way.
struct Running<'a> {
    config: &'a Config,
    shared: Arc<Shared>,
    shutdown: &'a Shutdown,
    source: Source,
    schedule: Schedule,
    /// Nanoseconds of a step of the timeline.
    step: u64,
    peak: u64,
}

/// What was measured.
struct Measured {
    wrote: Wrote,
    received: Received,
    lists: Option<super::Lists>,
    usage: Result<Usage, String>,
    all_synced: Duration,
    expected: u64,
}

async fn run_one(
    config: &Config,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<Run, Error> {
    enough_files(config)?;
    let client = target::connect(&config.watched.client, config.watched.is_named).await?;
    let writer = match &config.written {
        None => client.clone(),
        Some(written) => target::connect(written, true).await?,
    };
    let version = Discovery::version(&client).await;
    let version = version.map_err(failed(|| {
        format!("ask {} for its version", client.server())
    }))?;
    let resource = target::resource(&writer, &config.resource).await?;
    let id = format!("{:08x}", rand::random::<u32>());
    let objects = Objects::new(&id, &resource, config.selector.as_ref(), config.watchers);
    let namespace = config.namespace.as_deref();
    let stage = Stage::prepare(writer.clone(), resource.clone(), namespace, objects);
    let mut stage = stage.await?;
    let collection = match config.all_namespaces {
        true => resource.gvr.path(None),
        false => stage.path(),
    };
    progress.say(&format!(
        "{}: {} {} of {} in namespace {}",
        client.server(),
        config.objects,
        if config.objects == 1 {
            "object"
        } else {
            "objects"
        },
        resource.gvr.group_resource(),
        stage.namespace
    ));
    let shared = Shared::new(config, client.clone(), collection, &id);
    let shared = Arc::new(shared);
    let settings = settings(config, &client, &writer, &stage, version, &shared);
    let outcome = on_stage(
        config,
        &mut stage,
        &writer,
        Arc::clone(&shared),
        progress,
        shutdown,
    )
    .await;
    shared.stop();
    let cleaned = stage.clean_up().await;
    let left_behind = cleaned.err().map(|error| error.to_string());
    if let Some(left_behind) = &left_behind {
        progress.say(left_behind);
    }
    let (object_bytes, measured) = outcome?;
    let interrupted = shared.is_cut_short();
    Ok(report(
        settings,
        measured,
        interrupted,
        object_bytes,
        left_behind,
    ))
}

async fn on_stage(
    config: &Config,
    stage: &mut Stage,
    writer: &Client,
    shared: Arc<Shared>,
    progress: &mut Progress,
    shutdown: &Shutdown,
) -> Result<(usize, Measured), Error> {
    let object_bytes = tokio::select! {
        filled = stage.fill(config.objects, config.object_size) => filled?,
        () = shutdown.draining() => return Err(Error::Interrupted),
    };
    let source = Source::of(&config.watched, &shared.client, &shared.collection).await?;
    let step = (config.duration / STEPS).max(SHORTEST_STEP);
    let running = Running {
        config,
        shared: Arc::clone(&shared),
        shutdown,
        source,
        schedule: Schedule::new(config.rate, config.objects, config.duration),
        step: nanoseconds(step),
        peak: 0,
    };
    let writing = Writing {
        shared,
        client: writer.clone(),
        objects: stage.objects.clone(),
        path: stage.path(),
        schedule: running.schedule,
    };
    Ok((object_bytes, running.measure(writing, progress).await?))
}

impl Running<'_> {
    async fn measure(
        mut self,
        writing: Writing,
        progress: &mut Progress,
    ) -> Result<Measured, Error> {
        let before = self.sample().await;
        let receivers =
            Receivers::start(&self.shared, self.shutdown, self.step).map_err(Error::Thread)?;
        let all_synced = self.synced(progress).await?;
        let idle = self.sample().await;
        let storm = Storm::start(&self.shared, self.shutdown).map_err(Error::Thread)?;
        let wrote = self.written(writing, progress).await?;
        let expected = wrote.acknowledged * self.watchers_of_an_object();
        self.drained(expected, progress).await?;
        let after = self.sample().await;
        self.shared.stop();
        let lists = storm.finish().await;
        let received = receivers.finish(self.step).await.map_err(Error::Thread)?;
        let usage = match (before, idle, after) {
            (Ok(before), Ok(idle), Ok(after)) => {
                Ok(usage(before, idle, after, self.peak, received.tally.events))
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
        })
    }

    /// How many watchers want each object.
    fn watchers_of_an_object(&self) -> u64 {
        let selector = self.config.selector.as_ref();
        match selector.is_some_and(SelectorTemplate::is_per_watcher) {
            true => 1,
            false => u64::from(self.config.watchers),
        }
    }

    async fn sample(&mut self) -> Result<Sample, String> {
        let sample = self.source.sample().await?;
        self.peak = self.peak.max(sample.resident_bytes);
        Ok(sample)
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
            if synced >= watchers as usize {
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
    async fn written(&mut self, writing: Writing, progress: &mut Progress) -> Result<Wrote, Error> {
        let shutdown = self.shutdown;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let started = Instant::now();
        let mut sampled = started;
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
            if sampled.elapsed() >= SAMPLE {
                sampled = Instant::now();
                if let Err(problem) = self.sample().await {
                    tracing::debug!(problem, "no figures of the server");
                }
            }
            let delivered = self.shared.delivered.load(Ordering::Relaxed);
            let done = started.elapsed().as_secs_f64() / self.config.duration.as_secs_f64();
            progress.show("writing", done, &format!("{delivered} events delivered"));
        }
    }

    /// Waits until everything has come, or nothing comes any more.
    async fn drained(&self, expected: u64, progress: &mut Progress) -> Result<(), Error> {
        let mut last = (0, Instant::now());
        loop {
            self.check()?;
            let delivered = self.shared.delivered.load(Ordering::Relaxed);
            if delivered >= expected {
                return Ok(());
            }
            if delivered > last.0 {
                last = (delivered, Instant::now());
            }
            let silence = match self.shutdown.is_draining() {
                true => SHORT_SILENCE,
                false => SILENCE,
            };
            if last.1.elapsed() > silence {
                progress.say(&format!(
                    "{delivered} of {expected} events came, and then none for {silence:?}"
                ));
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
        resident_bytes_peak: peak,
    }
}

fn settings(
    config: &Config,
    client: &Client,
    writer: &Client,
    stage: &Stage,
    server_version: String,
    shared: &Shared,
) -> Settings {
    Settings {
        server: client.server().to_owned(),
        server_version,
        write_server: writer.server().to_owned(),
        resource: shared
            .collection
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        namespace: stage.namespace.clone(),
        all_namespaces: config.all_namespaces,
        watchers: config.watchers,
        connections: match config.protocol {
            Protocol::Http1 => config.watchers,
            Protocol::Http2 => config.connections,
        },
        protocol: config.protocol.name().to_owned(),
        format: config.format.name().to_owned(),
        selector: config.selector.as_ref().map(ToString::to_string),
        watch_list: config.watch_list,
        rate: match config.rate {
            Rate::PerSecond(rate) => Some(rate),
            Rate::Max => None,
        },
        objects: config.objects,
        seconds: config.duration.as_secs_f64(),
        list_storm: config.list_storm,
        slow_watchers: config.slow_watchers,
    }
}

fn report(
    settings: Settings,
    measured: Measured,
    interrupted: bool,
    object_bytes: usize,
    left_behind: Option<String>,
) -> Run {
    let Measured {
        wrote,
        received,
        lists,
        usage,
        all_synced,
        expected,
    } = measured;
    let Received {
        watched,
        tally,
        slow,
    } = received;
    let mut sync = Histogram::default();
    let mut faults = Faults::default();
    let mut watches = Watches {
        reconnects: 0,
        expired: 0,
        retries: 0,
        slow: slow.opened,
        slow_ended: slow.ended,
    };
    for watcher in &watched {
        if let Some(after) = watcher.synced_after {
            sync.record(after);
        }
        faults.add(&watcher.checker.finish(&wrote.written));
        watches.reconnects += watcher.ends;
        watches.expired += watcher.expired;
        watches.retries += watcher.retries;
    }
    let per_second = |count: u64, nanoseconds: u64| match nanoseconds {
        0 => 0.0,
        nanoseconds => count as f64 * 1e9 / nanoseconds as f64,
    };
    Run {
        settings,
        interrupted,
        object_bytes,
        sync_ms: sync.latency(),
        all_synced_seconds: all_synced.as_secs_f64(),
        writes: Writes {
            acknowledged: wrote.acknowledged,
            per_second: per_second(wrote.acknowledged, wrote.ended),
            retries: wrote.retries,
            given_up: wrote.given_up,
            latency_ms: wrote.latency.latency(),
            lateness_ms: wrote.lateness.latency(),
        },
        events: Events {
            expected,
            delivered: tally.events,
            per_second: per_second(tally.events, tally.last),
            bytes: tally.bytes,
            faults,
            from_schedule_ms: tally.from_schedule.latency(),
            from_acknowledgement_ms: tally.from_acknowledgement.latency(),
            before_acknowledgement: tally.before_acknowledgement,
            bookmarks: tally.bookmarks,
            foreign: tally.foreign,
        },
        watches,
        lists,
        server_unknown: usage.as_ref().err().cloned(),
        server: usage.ok(),
        left_behind,
        distribution: tally.from_schedule.distribution(),
        distribution_from_acknowledgement: tally.from_acknowledgement.distribution(),
        throughput: tally.throughput(),
    }
}

/// Refuses what would end in the middle for want of file descriptors.
fn enough_files(config: &Config) -> Result<(), Error> {
    let connections = match config.protocol {
        Protocol::Http1 => config.watchers + config.slow_watchers,
        Protocol::Http2 => config.connections + config.slow_watchers.div_ceil(100),
    };
    let needed = u64::from(connections) + u64::from(config.list_storm) + OTHER_FILES;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match open_files(&limits) {
        Some(limit) if limit < needed => Err(Error::Refused(format!(
            "{connections} connections need {needed} open files, and the limit is {limit}: raise it with \
             `ulimit -n {needed}`, or take fewer connections"
        ))),
        _ => Ok(()),
    }
}

/// The soft limit.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             95000                95000                processes\n\
                      Max open files            1024                 20000                files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files(
                "Max open files            unlimited            unlimited            files\n"
            ),
            None
        );
    }

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
    }
}
