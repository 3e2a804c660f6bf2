//! The report of a load test. It is written as JSON, and is the source of the text table and the
//! HTML page.

use serde::Serialize;

use super::environment::Environment;
use crate::load::histogram::Latency;
use crate::load::usage::Usage;
use crate::load::watch::checker::DeliveryErrors;
use crate::load::watch::list_storm::Lists;

/// The report of a load test of one server, or of two servers that are compared.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of the report's format; always 1.
    pub version: u32,
    /// The name and version of the program that wrote the report.
    pub tool: String,
    /// When, where and how the test was started.
    pub environment: Environment,
    /// The run against the first server, and then the run against the second one if there is one.
    pub runs: Vec<Run>,
    /// The reason why the requested second run failed; `None` if it succeeded or was not requested.
    pub compared_failed: Option<String>,
    /// The first run's results divided by the second run's; `None` if there is only one run.
    pub ratios: Option<Ratios>,
}

/// The results of a run against one server.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The settings of the run.
    pub settings: Settings,
    /// True if a signal ended the run early.
    pub interrupted: bool,
    /// The size of an object in bytes, as the server encoded it in JSON.
    pub object_bytes: usize,
    /// The time in milliseconds from a watcher's request until it had received all objects that it
    /// selects.
    pub sync_ms: Latency,
    /// The time in seconds until all watchers had received all objects.
    pub all_synced_seconds: f64,
    /// Counts and latencies of the writes.
    pub writes: Writes,
    /// Counts, errors and latencies of the events that the watchers received.
    pub events: Events,
    /// How often watches ended, expired or were retried.
    pub watches: Watches,
    /// How the watches resumed after the test had cut all their connections; `None` if it did not.
    /// Its events and writes are in no other figure, except that `events` has its delivery errors
    /// and `watches` what happened to its watches. Listing clients go on meanwhile.
    pub resume: Option<Resume>,
    /// Counts and latencies of the lists; `None` without listing clients.
    pub lists: Option<Lists>,
    /// The CPU time and memory of the server; `None` if unknown.
    pub server: Option<Usage>,
    /// The reason why `server` is `None`.
    pub server_unknown: Option<String>,
    /// The CPU time and memory of the server that took the writes, if that is not the watched
    /// server. If the watched server took the writes, `server` includes their cost.
    pub write_server: Option<Usage>,
    /// The reason why `write_server` is `None`, if another server took the writes.
    pub write_server_unknown: Option<String>,
    /// The CPU time of the load test itself in seconds, from the first write to the end of the
    /// drain. If the load test used all the CPU time that the server left, it caused part of the
    /// latencies itself.
    pub own_cpu_seconds: f64,
    /// The error of the cleanup, if something may be left on the server; `None` if everything was
    /// deleted.
    pub left_behind: Option<String>,
    /// The cumulative distribution of `events.from_schedule_ms`: pairs of a latency in milliseconds
    /// and the share of events with at most this latency.
    pub distribution: Vec<(f64, f64)>,
    /// The cumulative distribution of `events.from_acknowledgement_ms`: pairs of a latency in
    /// milliseconds and the share of events with at most this latency.
    pub distribution_from_acknowledgement: Vec<(f64, f64)>,
    /// The throughput over time: pairs of seconds since the first write and events per second.
    pub throughput: Vec<(f64, f64)>,
}

/// The settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The watched server's name: the name from the command line, or the server's URL.
    pub name: String,
    /// The watched server's URL.
    pub server: String,
    /// The version that the watched server reports; kubefan reports the API server's version.
    pub server_version: String,
    /// The URL of the server where objects were created and changed.
    pub write_server: String,
    /// The plural name of the resource, such as `configmaps`.
    pub resource: String,
    /// The namespace of the objects.
    pub namespace: String,
    /// True if all namespaces were watched.
    pub all_namespaces: bool,
    /// The number of watchers, without slow watchers.
    pub watchers: u32,
    /// The number of the watchers' connections.
    pub connections: u32,
    /// The watchers' protocol: `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// The wire format of watches and lists: `json` or `protobuf`.
    pub format: String,
    /// The watchers' selector, with `{i}` for the watcher's number; `None` if there was none.
    pub selector: Option<String>,
    /// True if watchers got the initial objects as a watch-list.
    pub watch_list: bool,
    /// The scheduled writes per second; `null` if writes were sent as fast as possible.
    pub rate: Option<f64>,
    /// The limit on writes that had not yet reached every watcher; `null` if there was none.
    pub window: Option<u32>,
    /// The number of objects.
    pub objects: u32,
    /// The planned duration of the writing phase, in seconds.
    pub seconds: f64,
    /// The number of clients that listed repeatedly during the writing phase.
    pub list_storm: u32,
    /// The number of additional watchers that did not read.
    pub slow_watchers: u32,
    /// True if the test was to cut all connections at the end.
    pub resume: bool,
}

/// Counts and latencies of the writes of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Writes {
    /// The number of writes that the server acknowledged.
    pub acknowledged: u64,
    /// The acknowledged writes per second, until the last acknowledgement.
    pub per_second: f64,
    /// The number of requests that failed and were sent again.
    pub retries: u64,
    /// The number of scheduled writes that were never acknowledged.
    pub given_up: u64,
    /// The time in milliseconds from a request to its acknowledgement.
    pub latency_ms: Latency,
    /// The time in milliseconds from when a write was due until a writer began to send it. Large
    /// values mean that the server or the load test's machine was too slow.
    pub lateness_ms: Latency,
}

/// Counts, errors and latencies of the events of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Events {
    /// The number of events that the watchers must receive for all acknowledged writes.
    pub expected: u64,
    /// The number of events that the watchers received, summed over the watchers. An event that one
    /// watcher gets twice counts once.
    pub delivered: u64,
    /// The delivered events per second, from the first write to the last event.
    pub per_second: f64,
    /// The bytes of the watches' bodies, from the first write on.
    pub bytes: u64,
    /// The numbers of events that were not delivered correctly.
    #[serde(flatten)]
    pub delivery_errors: DeliveryErrors,
    /// The time in milliseconds from when a write was due until its event was received.
    pub from_schedule_ms: Latency,
    /// The time in milliseconds from a write's acknowledgement until its event was received; zero
    /// if the event came first.
    pub from_acknowledgement_ms: Latency,
    /// The number of events that came before their write was acknowledged.
    pub before_acknowledgement: u64,
    /// The number of bookmarks.
    pub bookmarks: u64,
    /// The number of events of objects that do not belong to the run.
    pub foreign: u64,
}

/// How often the watches of a run ended, expired or were retried.
#[derive(Clone, Debug, Serialize)]
pub struct Watches {
    /// The number of watches that the server ended or that broke, and that were opened again. Those
    /// that the test cut itself do not count.
    pub reconnects: u64,
    /// How often a watcher had to start again without a version, because an error such as 410
    /// Expired ended its watch or prevented it from resuming.
    pub expired: u64,
    /// The number of requests for a watch that failed and were sent again.
    pub retries: u64,
    /// The number of slow watchers, which did not read, that opened a watch.
    pub slow: u64,
    /// The number of slow watchers that lost their watch because the server ended it.
    pub slow_ended: u64,
}

/// How the watches resumed after all connections of watchers had been cut at once. A watcher is live
/// again when it has received an event of a write after the cut.
#[derive(Clone, Debug, Serialize)]
pub struct Resume {
    /// The number of watchers that were live again.
    pub live: u64,
    /// The time in seconds from the cut until all watchers were live again; `None` if some were not.
    pub all_live_seconds: Option<f64>,
    /// The time in milliseconds from the cut until a watcher was live again.
    pub live_ms: Latency,
    /// How often a watcher had to start again without a version, because it got an error such as
    /// 410 Expired.
    pub expired: u64,
    /// The number of acknowledged writes after the cut.
    pub writes: u64,
    /// The number of writes after the cut that were never acknowledged.
    pub given_up: u64,
    /// The CPU time in seconds of the watched server, from the cut until all watchers were live
    /// again; `None` if unknown.
    pub server_cpu_seconds: Option<f64>,
    /// The same for the server that took the writes, if that is not the watched server.
    pub write_server_cpu_seconds: Option<f64>,
}

/// The results of the first run divided by those of the second; `null` if one of them is unknown or
/// the second is 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// Delivered events per second of the first run, divided by those of the second.
    pub events_per_second: Option<f64>,
    /// The ratio of the medians of `events.from_schedule_ms`.
    pub from_schedule_p50: Option<f64>,
    /// The ratio of the 99th percentiles of `events.from_schedule_ms`.
    pub from_schedule_p99: Option<f64>,
    /// The ratio of the medians of `events.from_acknowledgement_ms`.
    pub from_acknowledgement_p50: Option<f64>,
    /// The ratio of the 99th percentiles of `events.from_acknowledgement_ms`.
    pub from_acknowledgement_p99: Option<f64>,
    /// The ratio of the times until all watchers had received all objects.
    pub all_synced: Option<f64>,
    /// The ratio of the lists' median latencies.
    pub lists_p50: Option<f64>,
    /// The ratio of the watched servers' CPU times per delivered event.
    pub cpu_per_event: Option<f64>,
    /// The ratio of the CPU times per delivered event of the watched server and the server that
    /// took the writes together, so that both numbers contain the cost of the writes.
    pub cpu_per_event_with_writes: Option<f64>,
    /// The ratio of the servers' peak resident memory.
    pub resident_peak: Option<f64>,
    /// The ratio of the times from the cut of all connections until all watchers were live again.
    pub resume_all_live: Option<f64>,
    /// The ratio of the watched servers' CPU times during that time.
    pub resume_cpu: Option<f64>,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(
        environment: Environment,
        runs: Vec<Run>,
        compared_failed: Option<String>,
    ) -> Self {
        let ratios = match runs.as_slice() {
            [first, second] => Some(Ratios::between(first, second)),
            _ => None,
        };
        Self {
            version: 1,
            tool: concat!("kubefan ", env!("CARGO_PKG_VERSION")).to_owned(),
            environment,
            runs,
            compared_failed,
            ratios,
        }
    }

    /// Returns the names of the runs: the servers' names, followed by the number of the run if both
    /// servers have the same name.
    pub(crate) fn names(&self) -> Vec<String> {
        let names: Vec<_> = self.runs.iter().map(|run| &run.settings.name).collect();
        let name = |(index, name): (usize, &&String)| {
            let is_alone = names.iter().filter(|other| *other == name).count() == 1;
            if is_alone {
                (*name).clone()
            } else {
                format!("{name} (run {})", index + 1)
            }
        };
        names.iter().enumerate().map(name).collect()
    }

    /// Returns the delivery errors of all runs together; empty if every
    /// event was delivered correctly.
    pub fn delivery_errors(&self) -> DeliveryErrors {
        let mut all = DeliveryErrors::default();
        for run in &self.runs {
            all.add(&run.events.delivery_errors);
        }
        all
    }

    /// Returns the number of scheduled writes that were never acknowledged, those after the cut of
    /// all connections included, in all runs that were not interrupted.
    pub fn given_up(&self) -> u64 {
        let whole = self.runs.iter().filter(|run| !run.interrupted);
        let after_cut = |run: &Run| run.resume.as_ref().map_or(0, |resume| resume.given_up);
        whole.map(|run| run.writes.given_up + after_cut(run)).sum()
    }

    /// Returns the number of watchers that did not become live again after their connections had
    /// been cut, in all runs that were not interrupted.
    pub fn not_resumed(&self) -> u64 {
        let whole = self.runs.iter().filter(|run| !run.interrupted);
        let not_live = whole.filter_map(|run| {
            let watchers = u64::from(run.settings.watchers);
            Some(watchers.saturating_sub(run.resume.as_ref()?.live))
        });
        not_live.sum()
    }

    /// Encodes the report as indented JSON with a final line break.
    ///
    /// # Errors
    ///
    /// Does not happen in practice, because all keys are strings.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

// === impl Run ===

impl Run {
    /// Returns true if the watched server took the writes too.
    pub(crate) fn has_writes(&self) -> bool {
        self.settings.write_server == self.settings.server
    }

    /// Returns the CPU time per delivered event, in microseconds, of all servers that took part.
    pub(crate) fn cpu_per_event_with_writes(&self) -> Option<f64> {
        let watched = self.server.as_ref()?.cpu_microseconds_per_event;
        if self.has_writes() {
            Some(watched)
        } else {
            Some(watched + self.write_server.as_ref()?.cpu_microseconds_per_event)
        }
    }

    /// Returns the number of delivered events per write.
    pub(crate) fn events_per_write(&self) -> f64 {
        self.events.delivered as f64 / self.writes.acknowledged.max(1) as f64
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
            cpu_per_event_with_writes: ratio(&Run::cpu_per_event_with_writes),
            resident_peak: ratio(&|run| Some(run.server.as_ref()?.resident_bytes_peak as f64)),
            resume_all_live: ratio(&|run| run.resume.as_ref()?.all_live_seconds),
            resume_cpu: ratio(&|run| run.resume.as_ref()?.server_cpu_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Report {
        pub(crate) fn for_tests(runs: Vec<Run>, compared_failed: Option<String>) -> Self {
            Self::new(Environment::of_process(), runs, compared_failed)
        }
    }

    impl Usage {
        /// Creates a usage of this CPU time per event, with one event.
        pub(crate) fn for_tests(cpu_microseconds_per_event: f64) -> Self {
            Self {
                cpu_seconds: cpu_microseconds_per_event / 1e6,
                cpu_microseconds_per_event,
                resident_bytes_before: 1,
                resident_bytes_idle: 1,
                resident_bytes_peak: 1,
            }
        }
    }

    impl Settings {
        fn for_tests(server: &str) -> Self {
            Self {
                name: server.to_owned(),
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
                resume: false,
            }
        }
    }

    impl Resume {
        /// Creates the results of one watcher, which was live again after half a second.
        pub(crate) fn for_tests() -> Self {
            Self {
                live: 1,
                all_live_seconds: Some(0.5),
                live_ms: Latency {
                    count: 1,
                    p99: 500.0,
                    ..Latency::default()
                },
                expired: 0,
                writes: 3,
                given_up: 0,
                server_cpu_seconds: Some(0.25),
                write_server_cpu_seconds: None,
            }
        }
    }

    impl Run {
        /// Creates a run with one write, one watcher and one delivered event.
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
                resume: None,
                lists: None,
                server: None,
                server_unknown: Some("no source".to_owned()),
                write_server: None,
                write_server_unknown: None,
                own_cpu_seconds: 0.0,
                left_behind: None,
                distribution: vec![(1.0, 1.0)],
                distribution_from_acknowledgement: vec![(1.0, 1.0)],
                throughput: vec![(0.0, 1.0)],
            }
        }
    }

    #[test]
    fn ratios_divide_the_first_run_by_the_second_if_both_have_a_figure() {
        let (mut first, mut second) = (Run::for_tests("a"), Run::for_tests("b"));
        first.events.per_second = 30.0;
        second.events.per_second = 10.0;
        first.events.from_schedule_ms.p99 = 1.0;
        second.events.from_schedule_ms.p99 = 4.0;
        // The second run's median is 0, so there is no ratio.
        first.events.from_acknowledgement_ms.p50 = 1.0;
        let ratios = Ratios::between(&first, &second);
        assert_eq!(ratios.events_per_second, Some(3.0));
        assert_eq!(ratios.from_schedule_p99, Some(0.25));
        assert_eq!(ratios.all_synced, Some(1.0));
        assert_eq!(ratios.from_acknowledgement_p50, None);
        assert_eq!((ratios.lists_p50, ratios.cpu_per_event), (None, None));
        assert_eq!((ratios.resume_all_live, ratios.resume_cpu), (None, None));
        for (run, seconds) in [(&mut first, 0.5), (&mut second, 2.0)] {
            run.resume = Some(Resume {
                all_live_seconds: Some(seconds),
                ..Resume::for_tests()
            });
        }
        let ratios = Ratios::between(&first, &second);
        assert_eq!(ratios.resume_all_live, Some(0.25));
        assert_eq!(ratios.resume_cpu, Some(1.0));
        let alone = Report::for_tests(vec![first], Some("no route".to_owned()));
        assert_eq!(alone.ratios, None);
    }

    #[test]
    fn writes_that_were_given_up_are_counted_in_both_phases() {
        let mut run = Run::for_tests("a");
        run.writes.given_up = 2;
        let given_up = |run: &Run| Report::for_tests(vec![run.clone()], None).given_up();
        assert_eq!(given_up(&run), 2);
        run.resume = Some(Resume {
            given_up: 3,
            ..Resume::for_tests()
        });
        assert_eq!(given_up(&run), 5);
        run.interrupted = true;
        assert_eq!(given_up(&run), 0);
    }

    #[test]
    fn watchers_that_did_not_resume_are_counted() {
        let mut run = Run::for_tests("a");
        run.settings.watchers = 5;
        let not_resumed = |run: &Run| Report::for_tests(vec![run.clone()], None).not_resumed();
        assert_eq!(not_resumed(&run), 0);
        run.resume = Some(Resume::for_tests());
        assert_eq!(not_resumed(&run), 4);
        run.interrupted = true;
        assert_eq!(not_resumed(&run), 0);
    }

    #[test]
    fn the_cost_of_the_writes_is_in_one_figure_of_each_run() {
        let (mut first, mut second) = (Run::for_tests("proxy"), Run::for_tests("server"));
        first.settings.write_server = "server".to_owned();
        first.server = Some(Usage::for_tests(3.0));
        second.server = Some(Usage::for_tests(30.0));
        let unknown = Ratios::between(&first, &second);
        assert_eq!(unknown.cpu_per_event, Some(0.1));
        assert_eq!(unknown.cpu_per_event_with_writes, None);
        first.write_server = Some(Usage::for_tests(12.0));
        let known = Ratios::between(&first, &second);
        assert_eq!(known.cpu_per_event, Some(0.1));
        assert_eq!(known.cpu_per_event_with_writes, Some(0.5));
        assert!(!first.has_writes() && second.has_writes());
    }
}
