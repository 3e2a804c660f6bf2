//! What a run showed: figures for programs, from which the table and the page are made.

use serde::Serialize;

use crate::tools::load::histogram::Latency;
use crate::tools::load::usage::Usage;
use crate::tools::load::watch::checker::DeliveryErrors;
use crate::tools::load::watch::list_storm::Lists;

/// Of one server, or of two.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The form of this report; 1.
    pub version: u32,
    /// The program and its version.
    pub tool: String,
    /// The server, and the one that it is compared with.
    pub runs: Vec<Run>,
    /// Why there is no second run, though one was asked for.
    pub compared_failed: Option<String>,
    /// The first server's figures divided by the second's.
    pub ratios: Option<Ratios>,
}

/// A run against one server.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// What was asked for.
    pub settings: Settings,
    /// True when a signal came before the end.
    pub interrupted: bool,
    /// Bytes of an object as JSON, as the server told it.
    pub object_bytes: usize,
    /// From a watcher's request until it had seen all objects.
    pub sync_ms: Latency,
    /// Until all watchers had.
    pub all_synced_seconds: f64,
    /// The writes.
    pub writes: Writes,
    /// The watchers' events.
    pub events: Events,
    /// Watches that ended.
    pub watches: Watches,
    /// The lists, if there were any.
    pub lists: Option<Lists>,
    /// What the server needed, if that is known.
    pub server: Option<Usage>,
    /// Why it is not.
    pub server_unknown: Option<String>,
    /// CPU of the load test itself, over the same time as the server's: where it has all of the machine that the
    /// server leaves, latencies are its own.
    pub own_cpu_seconds: f64,
    /// What could not be deleted afterwards, and why.
    pub left_behind: Option<String>,
    /// The distribution of `events.from_schedule_ms`: milliseconds, share of events not above them.
    pub distribution: Vec<(f64, f64)>,
    /// The same of `events.from_acknowledgement_ms`.
    pub distribution_from_acknowledgement: Vec<(f64, f64)>,
    /// Seconds from the first write on, events a second.
    pub throughput: Vec<(f64, f64)>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The server's URL.
    pub server: String,
    /// What it says its version is; kubefan says the API server's.
    pub server_version: String,
    /// Where was written.
    pub write_server: String,
    /// The resource.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// Whether all namespaces were watched.
    pub all_namespaces: bool,
    /// Watchers.
    pub watchers: u32,
    /// Connections of the watchers.
    pub connections: u32,
    /// HTTP/1.1 or HTTP/2.
    pub protocol: String,
    /// json or protobuf.
    pub format: String,
    /// What each watcher selected by.
    pub selector: Option<String>,
    /// Whether they began as watch-lists.
    pub watch_list: bool,
    /// Writes a second; `null` for as many as the server takes.
    pub rate: Option<f64>,
    /// Writes that had not reached every watcher, at most; `null` for no limit.
    pub window: Option<u32>,
    /// Objects.
    pub objects: u32,
    /// Seconds of writing.
    pub seconds: f64,
    /// Clients that listed meanwhile.
    pub list_storm: u32,
    /// Watchers that did not read.
    pub slow_watchers: u32,
}

/// The writes of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Writes {
    /// Those that the server acknowledged.
    pub acknowledged: u64,
    /// The same a second.
    pub per_second: f64,
    /// Requests that failed and were sent again.
    pub retries: u64,
    /// Writes of the schedule that were never acknowledged.
    pub given_up: u64,
    /// From request to acknowledgement.
    pub latency_ms: Latency,
    /// From the scheduled time to the request: what the server, or this machine, was late by.
    pub lateness_ms: Latency,
}

/// The events of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Events {
    /// Those that the watchers' selectors want, of all acknowledged writes.
    pub expected: u64,
    /// Those that came.
    pub delivered: u64,
    /// The same a second, from the first write to the last event.
    pub per_second: f64,
    /// Bytes of the watches' bodies.
    pub bytes: u64,
    /// What went wrong.
    #[serde(flatten)]
    pub delivery_errors: DeliveryErrors,
    /// From when the write was due until the event was received.
    pub from_schedule_ms: Latency,
    /// From the write's acknowledgement; zero of events that were faster.
    pub from_acknowledgement_ms: Latency,
    /// Events that were faster.
    pub before_acknowledgement: u64,
    /// Bookmarks.
    pub bookmarks: u64,
    /// Events of objects that are not the run's.
    pub foreign: u64,
}

/// What became of the watches.
#[derive(Clone, Debug, Serialize)]
pub struct Watches {
    /// Watches that the server ended, or that broke, and were opened again.
    pub reconnects: u64,
    /// Times that one had to begin anew, as an error such as 410 Expired ended it or kept it from going on.
    pub expired: u64,
    /// Requests for a watch that failed and were sent again.
    pub retries: u64,
    /// Watchers that didn't read.
    pub slow: u64,
    /// Of those, the ones that the server ended.
    pub slow_ended: u64,
}

/// One server's figures divided by another's; `null` where one of them has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// Events a second.
    pub events_per_second: Option<f64>,
    /// Median from the schedule.
    pub from_schedule_p50: Option<f64>,
    /// 99th percentile from the schedule.
    pub from_schedule_p99: Option<f64>,
    /// Median from the acknowledgement.
    pub from_acknowledgement_p50: Option<f64>,
    /// 99th percentile from the acknowledgement.
    pub from_acknowledgement_p99: Option<f64>,
    /// Time until all watchers had seen all objects.
    pub all_synced: Option<f64>,
    /// Median of the lists.
    pub lists_p50: Option<f64>,
    /// CPU of the server for each event.
    pub cpu_per_event: Option<f64>,
    /// The server's memory at most.
    pub resident_peak: Option<f64>,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(runs: Vec<Run>, compared_failed: Option<String>) -> Self {
        let ratios = match runs.as_slice() {
            [first, second] => Some(Ratios::between(first, second)),
            _ => None,
        };
        Self {
            version: 1,
            tool: concat!("kubefan ", env!("CARGO_PKG_VERSION")).to_owned(),
            runs,
            compared_failed,
            ratios,
        }
    }

    /// What went wrong with events, of all runs; a load test that lost none says so.
    pub fn delivery_errors(&self) -> DeliveryErrors {
        let mut all = DeliveryErrors::default();
        for run in &self.runs {
            all.add(&run.events.delivery_errors);
        }
        all
    }

    /// Writes of the schedule that were never acknowledged, of all runs that were not interrupted.
    pub fn given_up(&self) -> u64 {
        let whole = self.runs.iter().filter(|run| !run.interrupted);
        whole.map(|run| run.writes.given_up).sum()
    }

    /// As JSON.
    ///
    /// # Errors
    ///
    /// Never in practice: all keys are text.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

// === impl Ratios ===

impl Ratios {
    fn between(first: &Run, second: &Run) -> Self {
        let ratio = |figure: &dyn Fn(&Run) -> Option<f64>| {
            let (first, second) = (figure(first)?, figure(second)?);
            (second > 0.0).then_some(first / second)
        };
        let (schedule, acknowledgement) = (
            |run: &Run| run.events.from_schedule_ms,
            |run: &Run| run.events.from_acknowledgement_ms,
        );
        Self {
            events_per_second: ratio(&|run| Some(run.events.per_second)),
            from_schedule_p50: ratio(&|run| Some(schedule(run).p50)),
            from_schedule_p99: ratio(&|run| Some(schedule(run).p99)),
            from_acknowledgement_p50: ratio(&|run| Some(acknowledgement(run).p50)),
            from_acknowledgement_p99: ratio(&|run| Some(acknowledgement(run).p99)),
            all_synced: ratio(&|run| Some(run.all_synced_seconds)),
            lists_p50: ratio(&|run| Some(run.lists.as_ref()?.latency_ms.p50)),
            cpu_per_event: ratio(&|run| Some(run.server.as_ref()?.cpu_microseconds_per_event)),
            resident_peak: ratio(&|run| Some(run.server.as_ref()?.resident_bytes_peak as f64)),
        }
    }
}

#[cfg(test)]
impl Settings {
    fn for_tests(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            server_version: "v1.36.2".to_owned(),
            write_server: server.to_owned(),
            resource: "configmaps".to_owned(),
            namespace: "default".to_owned(),
            all_namespaces: false,
            watchers: 1,
            connections: 1,
            protocol: "HTTP/2".to_owned(),
            format: "json".to_owned(),
            selector: None,
            watch_list: false,
            rate: Some(1.0),
            window: None,
            objects: 1,
            seconds: 1.0,
            list_storm: 0,
            slow_watchers: 0,
        }
    }
}

#[cfg(test)]
impl Run {
    /// One write that a watcher got.
    pub(crate) fn for_tests(server: &str) -> Self {
        Self {
            settings: Settings::for_tests(server),
            interrupted: false,
            object_bytes: 2048,
            sync_ms: Latency::default(),
            all_synced_seconds: 0.5,
            writes: Writes {
                acknowledged: 1,
                per_second: 1.0,
                retries: 0,
                given_up: 0,
                latency_ms: Latency::default(),
                lateness_ms: Latency::default(),
            },
            events: Events {
                expected: 1,
                delivered: 1,
                per_second: 1.0,
                bytes: 2048,
                delivery_errors: DeliveryErrors::default(),
                from_schedule_ms: Latency::default(),
                from_acknowledgement_ms: Latency::default(),
                before_acknowledgement: 0,
                bookmarks: 0,
                foreign: 0,
            },
            watches: Watches {
                reconnects: 0,
                expired: 0,
                retries: 0,
                slow: 0,
                slow_ended: 0,
            },
            lists: None,
            server: None,
            server_unknown: Some("nobody told".to_owned()),
            own_cpu_seconds: 0.0,
            left_behind: None,
            distribution: vec![(1.0, 1.0)],
            distribution_from_acknowledgement: vec![(1.0, 1.0)],
            throughput: vec![(0.0, 1.0)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_divide_the_first_run_by_the_second_if_both_have_a_figure() {
        let (mut first, mut second) = (Run::for_tests("a"), Run::for_tests("b"));
        first.events.per_second = 30.0;
        second.events.per_second = 10.0;
        first.events.from_schedule_ms.p99 = 1.0;
        second.events.from_schedule_ms.p99 = 4.0;
        // A median of nothing divides nothing.
        first.events.from_acknowledgement_ms.p50 = 1.0;
        let ratios = Ratios::between(&first, &second);
        assert_eq!(ratios.events_per_second, Some(3.0));
        assert_eq!(ratios.from_schedule_p99, Some(0.25));
        assert_eq!(ratios.all_synced, Some(1.0));
        assert_eq!(ratios.from_acknowledgement_p50, None);
        assert_eq!((ratios.lists_p50, ratios.cpu_per_event), (None, None));
        let alone = Report::new(vec![first], Some("it is away".to_owned()));
        assert_eq!(alone.ratios, None);
    }
}
