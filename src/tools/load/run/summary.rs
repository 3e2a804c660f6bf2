//! Turns the results of a run into the run's part of the report.

use super::TestServers;
use super::measure::RunStats;
use super::resume::ResumeStats;
use super::test_namespace::TestNamespace;
use crate::load::config::{Config, Protocol};
use crate::load::histogram::Histogram;
use crate::load::results::report::{Events, Resume, Run, Settings, Watches, Writes};
use crate::load::watch::checker::DeliveryErrors;
use crate::load::watch::receivers::SlowWatchers;
use crate::load::watch::tally::Tally;
use crate::load::watch::watcher::WatcherStats;
use crate::load::write::writer::WriteStats;

/// Returns the settings of the run for the report, including the names and versions of the servers.
pub(super) fn settings(
    config: &Config,
    servers: &TestServers,
    test_namespace: &TestNamespace,
) -> Settings {
    let server = servers.client.server().to_owned();
    Settings {
        name: config.watched.name.clone().unwrap_or(server.clone()),
        server,
        server_version: servers.version.clone(),
        write_server: servers.writer.server().to_owned(),
        resource: servers.resource.gvr.resource.clone(),
        namespace: test_namespace.name.clone(),
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
        rate: config.rate,
        window: config.window,
        objects: config.objects,
        seconds: config.duration.as_secs_f64(),
        list_storm: config.list_storm,
        slow_watchers: config.slow_watchers,
        resume: config.resume,
    }
}

/// Builds the report of a run from its settings and results.
pub(super) fn summarize(
    settings: Settings,
    stats: RunStats,
    interrupted: bool,
    object_bytes: usize,
    left_behind: Option<String>,
) -> Run {
    let received = stats.received;
    let mut by_object = stats.write_stats.by_object.clone();
    if let Some(resume) = &stats.resume {
        for (first, later) in by_object.iter_mut().zip(&resume.write_stats.by_object) {
            *first = first.followed_by(*later);
        }
    }
    let mut errors = DeliveryErrors::default();
    for watcher in &received.watchers {
        errors.add(&watcher.checker.finish(&by_object));
    }
    let tally = &received.tally;
    let resume = stats.resume.as_ref();
    let resume = resume.map(|resume| resumed(resume, tally, settings.watchers));
    Run {
        settings,
        interrupted,
        object_bytes,
        sync_ms: sync_times(&received.watchers).latency(),
        all_synced_seconds: stats.all_synced.as_secs_f64(),
        writes: writes(&stats.write_stats),
        events: events(stats.expected, errors, tally),
        watches: watches(&received.watchers, received.slow),
        resume,
        lists: stats.lists,
        server_unknown: stats.usage.clone().and_then(Result::err),
        server: stats.usage.and_then(Result::ok),
        write_server_unknown: stats.write_usage.clone().and_then(Result::err),
        write_server: stats.write_usage.and_then(Result::ok),
        own_cpu_seconds: stats.own_cpu_seconds,
        left_behind,
        distribution: tally.latency_from_schedule.distribution(),
        distribution_from_acknowledgement: tally.latency_from_acknowledgement.distribution(),
        throughput: tally.throughput(),
    }
}

/// Returns the times from each watcher's request until it had received all objects that it selects.
fn sync_times(watchers: &[WatcherStats]) -> Histogram {
    let mut sync_times = Histogram::default();
    for after in watchers.iter().filter_map(|watcher| watcher.synced_after) {
        sync_times.record(after);
    }
    sync_times
}

fn writes(write_stats: &WriteStats) -> Writes {
    Writes {
        acknowledged: write_stats.acknowledged,
        per_second: per_second(write_stats.acknowledged, write_stats.last_acknowledged),
        retries: write_stats.retries,
        given_up: write_stats.given_up,
        latency_ms: write_stats.latency.latency(),
        lateness_ms: write_stats.lateness.latency(),
    }
}

fn events(expected: u64, errors: DeliveryErrors, tally: &Tally) -> Events {
    Events {
        expected,
        delivered: tally.events,
        per_second: per_second(tally.events, tally.last),
        bytes: tally.bytes,
        delivery_errors: errors,
        from_schedule_ms: tally.latency_from_schedule.latency(),
        from_acknowledgement_ms: tally.latency_from_acknowledgement.latency(),
        before_acknowledgement: tally.before_acknowledgement,
        bookmarks: tally.bookmarks,
        foreign: tally.foreign,
    }
}

fn watches(watchers: &[WatcherStats], slow: SlowWatchers) -> Watches {
    let sum = |count: fn(&WatcherStats) -> u64| watchers.iter().map(count).sum();
    Watches {
        reconnects: sum(|watcher| watcher.ends),
        expired: sum(|watcher| watcher.expired),
        retries: sum(|watcher| watcher.retries),
        slow: slow.opened,
        slow_ended: slow.ended,
    }
}

fn resumed(resume: &ResumeStats, tally: &Tally, watchers: u32) -> Resume {
    let live_ms = tally.live.latency();
    let cpu_seconds = |server: usize| resume.cpu_seconds.get(server).copied().flatten();
    Resume {
        live: resume.live,
        all_live_seconds: (resume.live >= u64::from(watchers)).then_some(live_ms.max / 1e3),
        live_ms,
        expired: tally.expired_after_cut,
        writes: resume.write_stats.acknowledged,
        given_up: resume.write_stats.given_up,
        server_cpu_seconds: cpu_seconds(0),
        write_server_cpu_seconds: cpu_seconds(1),
    }
}

fn per_second(count: u64, nanoseconds: u64) -> f64 {
    match nanoseconds {
        0 => 0.0,
        nanoseconds => count as f64 * 1e9 / nanoseconds as f64,
    }
}
