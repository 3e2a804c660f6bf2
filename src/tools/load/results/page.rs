//! The report as an HTML page that loads nothing from other places.

use std::fmt::Write as _;

use super::plot::{Line, Plot, Scale, escape, key};
use super::report::{Report, Run};
use super::table::{comparison, latencies, ratio_rows, rows};

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #59636e; --grid: #d8dee4;
  --s0: #0b62c4; --s1: #b4490c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e6e9ed; --dim: #9aa4af;
  --grid: #2d343c; --s0: #6cb0ff; --s1: #ffa657; --bad: #ff8a80; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, h2 { overflow-wrap: anywhere; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1.25rem .25rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--dim); font-weight: 500; } td.n, th.n { text-align: right; white-space: nowrap; }
@media (max-width: 40rem) { body { margin: 1rem auto; padding: 0 .6rem; } th, td { padding-right: .6rem; }
  td, th { overflow-wrap: anywhere; } .two { width: 100%; table-layout: fixed; } td.n, th.n { font-size: 12px; } }
@media (min-width: 40rem) { .two td { width: 50%; min-width: 14rem; } .two th:first-child { min-width: 9.5rem; }
  svg { min-width: 34rem; } }
td { min-width: 2.5rem; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--dim); font-size: 11px; }
.grid { stroke: var(--grid); fill: none; } .line { fill: none; stroke-width: 2; }
path.s0 { stroke: var(--s0); } path.s1 { stroke: var(--s1); stroke-dasharray: 6 3; }
.key::before { content: ''; display: inline-block; width: 1rem; height: 3px; margin: 0 .35rem .2rem 0; }
.key.s0::before { background: var(--s0); }
.key.s1::before { background: repeating-linear-gradient(90deg, var(--s1) 0 6px, transparent 6px 9px); }
.key { overflow-wrap: anywhere; margin-right: 1rem; } .legend { margin: 0 0 .5rem; color: var(--dim); } footer { margin: 2rem 0; } .bad { color: var(--bad); font-weight: 600; }
";

/// Formats the report as an HTML page.
pub fn page(report: &Report) -> String {
    let names = report.names();
    let title = format!("Watch load test of {}", names.join(" and "));
    let mut body = format!("<h1>{}</h1>", escape(&title));
    body.push_str(&problems(report));
    if let Some(comparison) = comparison(report) {
        // Writing to a String can't fail.
        let _ = write!(body, "<p>{}</p>", escape(&comparison));
    }
    body.push_str(&ratios(report, &names));
    body.push_str(&summary(report, &names));
    body.push_str("<h2>Latency in milliseconds</h2>");
    body.push_str(&latency_table(report, &names));
    // Without a schedule, a write is due when it is sent.
    let is_scheduled = report.runs.iter().any(|run| run.settings.rate.is_some());
    let due = if is_scheduled { "due" } else { "sent" };
    let from_schedule = format!("Latency from when a write was {due} until its event was received");
    let from_acknowledgement =
        "Latency from a write's acknowledgement until its event was received";
    let lines = |line: fn(&Run) -> &Vec<(f64, f64)>| -> Vec<Line<'_>> {
        let runs = report.runs.iter().zip(&names);
        runs.map(|(run, name)| (name.as_str(), line(run).as_slice()))
            .collect()
    };
    let plots = [
        distribution(&from_schedule, lines(|run| &run.distribution)),
        distribution(
            from_acknowledgement,
            lines(|run| &run.distribution_from_acknowledgement),
        ),
        throughput(lines(|run| &run.throughput)),
    ];
    body.extend(plots);
    body.push_str(&environment(report));
    let (title, tool) = (escape(&title), escape(&report.tool));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n\
         <footer class=\"legend\">{tool}</footer>\n</body>\n</html>\n"
    )
}

fn problems(report: &Report) -> String {
    let (mut text, mut problems) = (String::new(), Vec::new());
    let delivery_errors = report.delivery_errors();
    if delivery_errors.is_empty() {
        text.push_str(
            "<p>Every watcher got every event that matches its selector, once, in order.</p>",
        );
    } else {
        problems.push(delivery_errors.describe(" events") + ".");
    }
    let given_up = report.given_up();
    if given_up > 0 {
        problems.push(format!("{given_up} writes were not acknowledged in time."));
    }
    let not_resumed = report.not_resumed();
    if not_resumed > 0 {
        problems.push(format!("{not_resumed} watchers did not become live again."));
    }
    if let Some(failed) = &report.compared_failed {
        let failed = escape(failed);
        problems.push(format!(
            "The server to compare with could not be tested: {failed}"
        ));
    }
    for problem in problems {
        // Writing to a String can't fail.
        let _ = write!(text, "<p class=\"bad\">{problem}</p>");
    }
    text
}

/// Formats the summary as a table with one column for each run. If only one run has a row, the
/// other run's cell is empty.
fn summary(report: &Report, names: &[String]) -> String {
    let columns: Vec<_> = report.runs.iter().map(rows).collect();
    let mut order: Vec<&str> = Vec::new();
    for (name, _) in columns.iter().flatten() {
        if !order.contains(name) {
            order.push(name);
        }
    }
    let is_compared = columns.len() > 1;
    let class = if is_compared { " class=\"two\"" } else { "" };
    let mut text = format!("<h2>Summary</h2><div class=\"wide\"><table{class}>");
    if is_compared {
        text.push_str("<tr><th></th>");
        for (index, name) in names.iter().enumerate() {
            let _ = write!(text, "<th>{}</th>", key(index, name));
        }
        text.push_str("</tr>");
    }
    for name in order {
        let _ = write!(text, "<tr><th>{name}</th>");
        for column in &columns {
            let value = column.iter().find(|(other, _)| *other == name);
            let value = value.map_or("", |(_, value)| value);
            let _ = write!(text, "<td>{}</td>", escape(value));
        }
        text.push_str("</tr>");
    }
    text.push_str("</table></div>");
    text
}

fn latency_table(report: &Report, names: &[String]) -> String {
    let mut text = "<div class=\"wide\"><table><tr><th></th>".to_owned();
    for name in ["p50", "p90", "p99", "p99.9", "max"] {
        let _ = write!(text, "<th class=\"n\">{name}</th>");
    }
    text.push_str("</tr>");
    for (index, (run, name)) in report.runs.iter().zip(names).enumerate() {
        if report.runs.len() > 1 {
            let name = key(index, name);
            let _ = write!(text, "<tr><th colspan=\"6\">{name}</th></tr>");
        }
        for (name, latency) in latencies(run) {
            let _ = write!(text, "<tr><td>{name}</td>");
            for value in [
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p999,
                latency.max,
            ] {
                let _ = write!(text, "<td class=\"n\">{value:.2}</td>");
            }
            text.push_str("</tr>");
        }
    }
    text.push_str("</table></div>");
    text
}

/// Formats when, where and how the test was started.
fn environment(report: &Report) -> String {
    let mut text = "<h2>The test</h2><div class=\"wide\"><table>".to_owned();
    for (name, value) in report.environment.rows() {
        let _ = write!(text, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value));
    }
    text.push_str("</table></div>");
    text
}

/// Formats a diagram with its heading and legend as HTML.
fn section(plot: &Plot<'_>) -> String {
    let (heading, legend) = (escape(plot.title), plot.legend());
    let svg = plot.svg();
    format!("<h2>{heading}</h2>{legend}<div class=\"wide\">{svg}</div>")
}

fn distribution(title: &str, lines: Vec<Line<'_>>) -> String {
    section(&Plot {
        title,
        x: ("latency in milliseconds", Scale::Logarithmic),
        y: ("share of events up to this latency", Scale::Tail),
        lines,
    })
}

fn throughput(lines: Vec<Line<'_>>) -> String {
    section(&Plot {
        title: "Throughput over time",
        x: ("seconds since the first write", Scale::Linear),
        y: ("events per second", Scale::Linear),
        lines,
    })
}

fn ratios(report: &Report, names: &[String]) -> String {
    let (Some(ratios), [first, second]) = (&report.ratios, names) else {
        return String::new();
    };
    let (first, second) = (escape(first), escape(second));
    let mut text = format!("<h2>{first} compared with {second}</h2><div class=\"wide\"><table>");
    for (name, ratio) in ratio_rows(ratios) {
        let _ = write!(text, "<tr><th>{name}</th><td class=\"n\">{ratio}</td></tr>");
    }
    text.push_str("</table></div>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_are_shown_side_by_side_and_distinguished() {
        let mut second = Run::for_tests("https://b");
        second.settings.slow_watchers = 3;
        second.watches.slow = 3;
        let report = Report::for_tests(vec![Run::for_tests("https://a"), second], None);
        let page = page(&report);
        assert_eq!(page.matches("<table class=\"two\">").count(), 1);
        // A run's name is in the summary, in the latency table, and at each of the three diagrams.
        for key in [
            "<span class=\"key s0\">https://a</span>",
            "<span class=\"key s1\">https://b</span>",
        ] {
            assert_eq!(page.matches(key).count(), 5, "{page}");
        }
        assert!(page.contains("<h2>https://a compared with https://b</h2>"));
        let slow = "<tr><th>slow watchers</th><td></td><td>3, 0 of them";
        assert!(page.contains(slow), "{page}");
        assert!(!page.contains("class=\"bad\""));
        for row in [
            "<th>started</th>",
            "<th>load test on</th>",
            "<th>command</th>",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
    }

    #[test]
    fn runs_of_one_server_are_named_by_their_order() {
        let runs = vec![Run::for_tests("https://a"), Run::for_tests("https://a")];
        let page = page(&Report::for_tests(runs, None));
        assert!(page.contains("https://a (run 1) compared with https://a (run 2)"));
    }

    #[test]
    fn failures_are_shown_and_text_is_escaped() {
        let mut run = Run::for_tests("https://<i>&\"");
        run.events.delivery_errors.missed = 7;
        run.left_behind = Some("<i>".to_owned());
        run.writes.given_up = 9;
        let page = page(&Report::for_tests(vec![run], Some("<i>'".to_owned())));
        assert!(!page.contains("<i>"), "{page}");
        assert!(page.contains("<td>&lt;i&gt;</td>"), "{page}");
        assert!(page.contains("7 events missed"));
        assert!(page.contains("9 writes were not acknowledged"));
        assert!(page.contains("could not be tested: &lt;i&gt;&#39;"));
    }
}
