//! The report as text for a terminal.

use std::fmt::Write as _;

use super::report::{Events, Ratios, Report, Resume, Run, Settings};
use super::times::times;
use crate::load::histogram::Latency;

/// The minimum number of events per write to measure fan-out. With fewer events, a server spends
/// most of its CPU time on the writes or on being idle.
const FEW_EVENTS: f64 = 50.0;

/// Formats the report as text.
pub fn table(report: &Report) -> String {
    let mut text = "\n".to_owned();
    for (name, value) in report.environment.rows() {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:<26} {value}");
    }
    for run in &report.runs {
        text.push('\n');
        for (name, value) in rows(run) {
            let _ = writeln!(text, "{name:<26} {value}");
        }
        text.push_str(
            "\nlatency, ms                     p50       p90       p99     p99.9       max\n",
        );
        for (name, latency) in latencies(run) {
            let Latency {
                p50,
                p90,
                p99,
                p999,
                max,
                ..
            } = latency;
            let _ = writeln!(
                text,
                "{name:<26} {p50:>8.2}  {p90:>8.2}  {p99:>8.2}  {p999:>8.2}  {max:>8.2}"
            );
        }
    }
    if let Some(failed) = &report.compared_failed {
        let _ = writeln!(
            text,
            "\nthe server to compare with could not be tested: {failed}"
        );
    }
    if let (Some(ratios), [first, second]) = (&report.ratios, report.names().as_slice()) {
        let _ = writeln!(text, "\n{first} compared with {second}");
        for (name, ratio) in ratio_rows(ratios) {
            let _ = writeln!(text, "{name:<26} {ratio}");
        }
    }
    text
}

/// Returns the result of the comparison in one sentence; `None` without a comparison.
pub(crate) fn comparison(report: &Report) -> Option<String> {
    let names = report.names();
    let ratios = report.ratios.as_ref()?;
    let [first, second] = names.as_slice() else {
        return None;
    };
    let alone = ratios.cpu_per_event;
    let all = ratios.cpu_per_event_with_writes;
    let late = ratios.from_acknowledgement_p99;
    let parts = [
        (alone, "CPU per event on the watched server"),
        (all, "on all servers, the writes included"),
        (late, "latency after the acknowledgement (p99)"),
    ];
    let parts = parts.into_iter();
    let parts: Vec<_> = parts
        .filter_map(|(ratio, what)| Some(format!("{} {what}", times(ratio?, 1.0))))
        .collect();
    let parts = Some(parts.join(", ")).filter(|parts| !parts.is_empty())?;
    Some(format!("{first} compared with {second}: {parts}."))
}

/// Returns the names and values of a run's summary, except the latencies.
pub(crate) fn rows(run: &Run) -> Vec<(&'static str, String)> {
    let settings = &run.settings;
    let mut server = format!("{} ({})", settings.server, settings.server_version);
    if settings.name != settings.server {
        server = format!("{}: {server}", settings.name);
    }
    let mut rows = vec![("server", server)];
    if settings.write_server != settings.server {
        rows.push(("write server", settings.write_server.clone()));
    }
    rows.push(("watchers", watchers(settings)));
    rows.push(("writes", writes(run)));
    let synced = format!("after {:.2} s", run.all_synced_seconds);
    rows.push(("all watchers in sync", synced));
    rows.push(("events", events(&run.events)));
    rows.push(("delivery errors", run.events.delivery_errors.describe("")));
    let (reconnects, expired) = (run.watches.reconnects, run.watches.expired);
    let watches = format!("{reconnects} reconnected, {expired} expired");
    rows.push(("watches", watches));
    rows.extend(exceptions(run));
    rows.extend(usage(run));
    rows
}

fn watchers(settings: &Settings) -> String {
    let selector = settings.selector.as_ref();
    let selector = selector.map(|by| format!(", selected by {by}"));
    format!(
        "{} on {} {} connection{}, {} of {}{}{}{}",
        settings.watchers,
        settings.connections,
        settings.protocol,
        text_if(settings.connections != 1, "s"),
        settings.format,
        settings.resource,
        text_if(settings.all_namespaces, " in all namespaces"),
        selector.unwrap_or_default(),
        text_if(settings.watch_list, ", with watch-list"),
    )
}

/// Returns the text if it applies, else nothing.
fn text_if(applies: bool, text: &str) -> &str {
    if applies { text } else { "" }
}

fn writes(run: &Run) -> String {
    let settings = &run.settings;
    let rate = match (settings.rate, settings.window) {
        (Some(rate), _) => format!("{rate}/s"),
        (None, Some(window)) => {
            format!("as many as possible, at most {window} ahead of the watchers,")
        }
        (None, None) => "as many as possible".to_owned(),
    };
    format!(
        "{} acknowledged, {:.1}/s (target: {rate} for {} s), {} objects of {} bytes",
        run.writes.acknowledged,
        run.writes.per_second,
        settings.seconds,
        settings.objects,
        run.object_bytes
    )
}

fn events(events: &Events) -> String {
    format!(
        "{} of {} delivered, {:.0}/s, {:.1} MB",
        events.delivered,
        events.expected,
        events.per_second,
        events.bytes as f64 / 1e6
    )
}

/// Returns the rows that only some runs have.
fn exceptions(run: &Run) -> Vec<(&'static str, String)> {
    let settings = &run.settings;
    let mut rows = Vec::new();
    if run.interrupted {
        let interrupted = "by a signal; the results are incomplete";
        rows.push(("interrupted", interrupted.to_owned()));
    }
    if run.writes.given_up + run.writes.retries > 0 {
        let (given_up, retries) = (run.writes.given_up, run.writes.retries);
        let failed = format!("{retries} retried, {given_up} given up");
        rows.push(("failed writes", failed));
    }
    if settings.slow_watchers > 0 {
        let (slow, ended) = (run.watches.slow, run.watches.slow_ended);
        let slow = format!("{slow}, {ended} of them ended by the server");
        rows.push(("slow watchers", slow));
    }
    if let Some(resume) = &run.resume {
        rows.push(("resume", resumed(resume, settings.watchers)));
    } else if settings.resume {
        let reason = "not measured, because the phase before it was not complete";
        rows.push(("resume", reason.to_owned()));
    }
    if let Some(lists) = &run.lists {
        let lists = format!(
            "{} by {} client{}, {:.1} MB, {} failed",
            lists.latency_ms.count,
            settings.list_storm,
            text_if(settings.list_storm != 1, "s"),
            lists.bytes as f64 / 1e6,
            lists.failed,
        );
        rows.push(("lists", lists));
    }
    if let Some(left_behind) = &run.left_behind {
        rows.push(("left behind", left_behind.clone()));
    }
    rows
}

fn resumed(resume: &Resume, watchers: u32) -> String {
    let when = match resume.all_live_seconds {
        Some(seconds) => format!("{seconds:.2} s after all connections were cut"),
        None => "after all connections were cut".to_owned(),
    };
    let given_up = match resume.given_up {
        0 => String::new(),
        given_up => format!(", {given_up} more given up"),
    };
    let cpu = resume.server_cpu_seconds;
    let cpu = cpu.map(|seconds| format!(", {seconds:.2} s of server CPU"));
    format!(
        "{} of {watchers} watchers live again {when}, {} expired, {} writes{given_up}{}",
        resume.live,
        resume.expired,
        resume.writes,
        cpu.unwrap_or_default()
    )
}

/// Returns the rows for the CPU time and memory of the server, and for
/// the CPU time of the load test.
fn usage(run: &Run) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    match (&run.server, &run.server_unknown) {
        (Some(usage), _) => {
            let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let writes = if run.has_writes() {
                "the writes included"
            } else {
                "without the writes"
            };
            let (seconds, each) = (usage.cpu_seconds, usage.cpu_microseconds_per_event);
            let few = few_events(run);
            let cpu = format!("{seconds:.2} s, {each:.2} µs per event, {writes}{few}");
            rows.push(("server CPU", cpu));
            let memory = format!(
                "{:.1} MiB before, {:.1} with idle watchers, {:.1} peak",
                mebibytes(usage.resident_bytes_before),
                mebibytes(usage.resident_bytes_idle),
                mebibytes(usage.resident_bytes_peak)
            );
            rows.push(("server memory", memory));
        }
        (None, Some(problem)) => {
            rows.push(("server CPU and memory", format!("unknown: {problem}")))
        }
        (None, None) => {}
    }
    rows.extend(write_usage(run));
    let own = run.own_cpu_seconds;
    let each = own * 1e6 / run.events.delivered.max(1) as f64;
    let own = format!("{own:.2} s, {each:.2} µs per event, the writes included");
    rows.push(("CPU of this program", own));
    rows
}

/// Returns the rows for the CPU time of the server that took the writes, if
/// that is not the watched server.
fn write_usage(run: &Run) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    match (&run.write_server, &run.write_server_unknown) {
        (Some(usage), _) => {
            let cpu = format!("{:.2} s, for the writes", usage.cpu_seconds);
            rows.push(("write server CPU", cpu));
        }
        (None, Some(problem)) => rows.push(("write server CPU", format!("unknown: {problem}"))),
        (None, None) => {}
    }
    if let Some(per_event) = run.cpu_per_event_with_writes()
        && let (Some(watched), Some(written)) = (&run.server, &run.write_server)
    {
        let seconds = watched.cpu_seconds + written.cpu_seconds;
        let cpu = format!("{seconds:.2} s, {per_event:.2} µs per event, the writes included");
        rows.push(("CPU of both servers", cpu));
    }
    rows
}

/// Returns a warning if the writes had so few events each that a server's CPU time does
/// not show the cost of fan-out.
fn few_events(run: &Run) -> String {
    let events = run.events_per_write();
    if events < FEW_EVENTS {
        format!("; only {events:.0} events per write, so this is not the cost of fan-out")
    } else {
        String::new()
    }
}

/// Returns the names and summaries of all latencies of a run.
pub(crate) fn latencies(run: &Run) -> Vec<(&'static str, Latency)> {
    let events = &run.events;
    // Without a schedule, a write is due when it is sent.
    let is_scheduled = run.settings.rate.is_some();
    let mut latencies = vec![
        if is_scheduled {
            ("write due → received", events.from_schedule_ms)
        } else {
            ("write sent → received", events.from_schedule_ms)
        },
        ("acknowledged → received", events.from_acknowledgement_ms),
        ("write sent → acknowledged", run.writes.latency_ms),
    ];
    if is_scheduled {
        latencies.push(("write due → sent", run.writes.lateness_ms));
    }
    latencies.push(("watch opened → in sync", run.sync_ms));
    if let Some(resume) = &run.resume {
        latencies.push(("cut → live again", resume.live_ms));
    }
    if let Some(lists) = &run.lists {
        latencies.push(("list", lists.latency_ms));
    }
    latencies
}

/// Returns the names of all ratios that could be computed, with the ratios in words.
pub(crate) fn ratio_rows(ratios: &Ratios) -> Vec<(&'static str, String)> {
    let all = [
        ("events per second", ratios.events_per_second),
        ("write → received, p50", ratios.from_schedule_p50),
        ("write → received, p99", ratios.from_schedule_p99),
        ("ack → received, p50", ratios.from_acknowledgement_p50),
        ("ack → received, p99", ratios.from_acknowledgement_p99),
        ("all watchers in sync", ratios.all_synced),
        ("list, p50", ratios.lists_p50),
        ("server CPU per event", ratios.cpu_per_event),
        ("same, with all writes", ratios.cpu_per_event_with_writes),
        ("peak server memory", ratios.resident_peak),
        ("cut → all live again", ratios.resume_all_live),
        ("server CPU to resume", ratios.resume_cpu),
    ];
    all.into_iter()
        .filter_map(|(name, ratio)| Some((name, times(ratio?, 1.0))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::usage::Usage;

    #[test]
    fn nothing_is_due_without_a_schedule() {
        let mut run = Run::for_tests("a");
        let names = |run: &Run| -> Vec<_> {
            let latencies = latencies(run).into_iter();
            latencies.map(|(name, _)| name).take(4).collect()
        };
        let scheduled = [
            "write due → received",
            "acknowledged → received",
            "write sent → acknowledged",
            "write due → sent",
        ];
        assert_eq!(names(&run), scheduled);
        run.settings.rate = None;
        let fastest = [
            "write sent → received",
            "acknowledged → received",
            "write sent → acknowledged",
            "watch opened → in sync",
        ];
        assert_eq!(names(&run), fastest);
    }

    #[test]
    fn unusual_results_have_a_row() {
        let mut run = Run::for_tests("a");
        let row = |run: &Run, name: &str| {
            let row = rows(run).into_iter().find(|(other, _)| *other == name);
            row.map(|(_, value)| value)
        };
        for name in [
            "interrupted",
            "failed writes",
            "left behind",
            "write server",
            "resume",
        ] {
            assert_eq!(row(&run, name), None, "{name}");
        }
        run.interrupted = true;
        run.writes.given_up = 3;
        run.left_behind = Some("an object".to_owned());
        run.settings.write_server = "b".to_owned();
        assert!(row(&run, "interrupted").is_some());
        let failed = Some("0 retried, 3 given up".to_owned());
        assert_eq!(row(&run, "failed writes"), failed);
        assert_eq!(row(&run, "left behind"), Some("an object".to_owned()));
        assert_eq!(row(&run, "write server"), Some("b".to_owned()));
        run.settings.resume = true;
        let skipped = row(&run, "resume").expect("a row");
        assert!(skipped.contains("not measured"), "{skipped}");
        run.resume = Some(Resume::for_tests());
        let resumed = "1 of 1 watchers live again 0.50 s after all connections were cut, 0 expired, \
                       3 writes, 0.25 s of server CPU";
        assert_eq!(row(&run, "resume").as_deref(), Some(resumed));
        run.resume = Some(Resume {
            given_up: 2,
            ..Resume::for_tests()
        });
        let resumed = row(&run, "resume").expect("a row");
        assert!(
            resumed.contains("3 writes, 2 more given up, 0.25 s"),
            "{resumed}"
        );
        let report = Report::for_tests(vec![run], Some("no route".to_owned()));
        let table = table(&report);
        assert!(table.contains("could not be tested: no route"), "{table}");
        assert!(table.contains("\ncut → live again  "), "{table}");
    }

    #[test]
    fn the_comparison_says_which_figure_contains_the_writes() {
        let (mut first, mut second) = (Run::for_tests("proxy"), Run::for_tests("server"));
        for run in [&mut first, &mut second] {
            run.settings.write_server = "server".to_owned();
            run.events.delivered = 100;
            run.events.from_acknowledgement_ms.p99 = 2.0;
        }
        first.server = Some(Usage::for_tests(3.0));
        first.write_server = Some(Usage::for_tests(12.0));
        second.server = Some(Usage::for_tests(36.0));
        let report = Report::for_tests(vec![first, second], None);
        assert_eq!(
            comparison(&report).as_deref(),
            Some(
                "proxy compared with server: 12x less CPU per event on the watched server, \
                 2.4x less on all servers, the writes included, \
                 the same latency after the acknowledgement (p99)."
            )
        );
        let table = table(&report);
        for part in [
            "\nstarted  ",
            "\ncommand  ",
            "3.00 µs per event, without the writes\n",
            "\nwrite server CPU           0.00 s, for the writes\n",
            "15.00 µs per event, the writes included\n",
            "36.00 µs per event, the writes included\n",
            "\nproxy compared with server\n",
            "\nserver CPU per event       12x less\n",
            "\nsame, with all writes      2.4x less\n",
        ] {
            assert!(table.contains(part), "{part:?}: {table}");
        }
    }

    #[test]
    fn few_events_per_write_are_no_measure_of_fan_out() {
        let mut run = Run::for_tests("a");
        run.server = Some(Usage::for_tests(2600.0));
        let cpu = |run: &Run| {
            let row = rows(run)
                .into_iter()
                .find(|(name, _)| *name == "server CPU");
            row.expect("a row").1
        };
        assert!(
            cpu(&run).contains("only 1 events per write"),
            "{}",
            cpu(&run)
        );
        run.events.delivered = 50;
        assert!(!cpu(&run).contains("per write"), "{}", cpu(&run));
    }

    #[test]
    fn a_name_precedes_the_url() {
        let mut run = Run::for_tests("http://a");
        run.settings.name = "kubefan".to_owned();
        assert_eq!(rows(&run)[0].1, "kubefan: http://a (v1.36.2)");
    }
}
