//! From what was measured to the report.

use crate::tools::load::config::Config;
use crate::tools::load::config::Protocol;
use crate::tools::load::histogram::Histogram;
use crate::tools::load::results::report::Events;
use crate::tools::load::results::report::Run;
use crate::tools::load::results::report::Settings;
use crate::tools::load::results::report::Watches;
use crate::tools::load::results::report::Writes;
use crate::tools::load::shared::Shared;
use crate::tools::load::watch::checker::Faults;
use crate::tools::load::watch::receivers::Received;
use crate::tools::load::watch::receivers::Slow;
use crate::tools::load::watch::tally::Tally;
use crate::tools::load::watch::watcher::Watched;
use crate::tools::load::write::schedule::Rate;
use crate::tools::load::write::writer::Wrote;
use crate::upstream::Client;

use super::measure::Measured;
use super::stage::Stage;

/// What was asked for, and of whom.
pub(super) fn settings(
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
        window: config.window,
        objects: config.objects,
        seconds: config.duration.as_secs_f64(),
        list_storm: config.list_storm,
        slow_watchers: config.slow_watchers,
    }
}

/// What came of it.
pub(super) fn summary(
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
        own_cpu_seconds,
    } = measured;
    let Received {
        watched,
        tally,
        slow,
    } = received;
    let mut faults = Faults::default();
    for watcher in &watched {
        faults.add(&watcher.checker.finish(&wrote.written));
    }
    Run {
        settings,
        interrupted,
        object_bytes,
        sync_ms: synced(&watched).latency(),
        all_synced_seconds: all_synced.as_secs_f64(),
        writes: writes(&wrote),
        events: events(expected, faults, &tally),
        watches: watches(&watched, slow),
        lists,
        server_unknown: usage.as_ref().err().cloned(),
        server: usage.ok(),
        own_cpu_seconds,
        left_behind,
        distribution: tally.from_schedule.distribution(),
        distribution_from_acknowledgement: tally.from_acknowledgement.distribution(),
        throughput: tally.throughput(),
    }
}

/// From each watcher's request until it had seen everything.
fn synced(watched: &[Watched]) -> Histogram {
    let mut synced = Histogram::default();
    for after in watched.iter().filter_map(|watcher| watcher.synced_after) {
        synced.record(after);
    }
    synced
}

fn writes(wrote: &Wrote) -> Writes {
    Writes {
        acknowledged: wrote.acknowledged,
        per_second: per_second(wrote.acknowledged, wrote.ended),
        retries: wrote.retries,
        given_up: wrote.given_up,
        latency_ms: wrote.latency.latency(),
        lateness_ms: wrote.lateness.latency(),
    }
}

fn events(expected: u64, faults: Faults, tally: &Tally) -> Events {
    Events {
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
    }
}

fn watches(watched: &[Watched], slow: Slow) -> Watches {
    let sum = |count: fn(&Watched) -> u64| watched.iter().map(count).sum();
    Watches {
        reconnects: sum(|watcher| watcher.ends),
        expired: sum(|watcher| watcher.expired),
        retries: sum(|watcher| watcher.retries),
        slow: slow.opened,
        slow_ended: slow.ended,
    }
}

fn per_second(count: u64, nanoseconds: u64) -> f64 {
    match nanoseconds {
        0 => 0.0,
        nanoseconds => count as f64 * 1e9 / nanoseconds as f64,
    }
}
