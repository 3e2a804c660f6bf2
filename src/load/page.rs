//! The report as one page for a browser: nothing is loaded from elsewhere.

use std::fmt::Write as _;

use super::plot::Axis;
use super::plot::Plot;
use super::plot::Scale;
use super::plot::escape;
use super::report::Report;
use super::report::Run;
use super::table::latencies;
use super::table::ratio_rows;
use super::table::rows;

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #59636e; --grid: #d8dee4;
  --s0: #0b62c4; --s1: #b4490c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e6e9ed; --dim: #9aa4af;
  --grid: #2d343c; --s0: #6cb0ff; --s1: #ffa657; --bad: #ff8a80; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem 1.25rem .25rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
th { color: var(--dim); font-weight: 500; } td.n, th.n { text-align: right; }
svg { width: 100%; height: auto; } svg text { fill: var(--dim); font-size: 11px; }
.grid { stroke: var(--grid); fill: none; } .line { fill: none; stroke-width: 2; }
path.s0 { stroke: var(--s0); } path.s1 { stroke: var(--s1); stroke-dasharray: 6 3; }
.key::before { content: ''; display: inline-block; width: 1rem; height: 3px; margin: 0 .35rem .2rem .5rem; }
.key.s0::before { background: var(--s0); } .key.s1::before { background: var(--s1); }
.legend { margin: 0; color: var(--dim); } .bad { color: var(--bad); font-weight: 600; }
";

/// The whole report as HTML.
pub fn page(report: &Report) -> String {
    let names: Vec<String> = report
        .runs
        .iter()
        .map(|run| run.settings.server.clone())
        .collect();
    let title = format!("Watch load test of {}", names.join(" and "));
    let mut body = format!("<h1>{}</h1>", escape(&title));
    body.push_str(&verdict(report));
    body.push_str(&summary(report));
    body.push_str("<h2>Latency, milliseconds</h2>");
    body.push_str(&latency_table(report));
    let plots = [
        plot(
            report,
            "From when a write was due until it was received",
            |run| &run.distribution,
        ),
        plot(
            report,
            "From a write's acknowledgement until it was received",
            |run| &run.distribution_from_acknowledgement,
        ),
        throughput(report),
    ];
    for (heading, drawn) in plots {
        // Writing to a String can't fail.
        let _ = write!(body, "<h2>{heading}</h2>{drawn}");
    }
    body.push_str(&ratios(report));
    let (title, tool) = (escape(&title), escape(&report.tool));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n\
         <p class=\"legend\">{tool}</p>\n</body>\n</html>\n"
    )
}

fn verdict(report: &Report) -> String {
    let faults = report.faults();
    match faults.is_empty() {
        true => "<p>Every watcher got every event that its selector wants, once and in order.</p>"
            .to_owned(),
        false => format!(
            "<p class=\"bad\">{} events missed, {} twice, {} out of order, {} unwanted.</p>",
            faults.missed, faults.duplicated, faults.out_of_order, faults.unwanted
        ),
    }
}

fn summary(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        text.push_str("<div class=\"wide\"><table>");
        for (name, value) in rows(run) {
            let _ = write!(text, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value));
        }
        text.push_str("</table></div><br>");
    }
    text
}

fn latency_table(report: &Report) -> String {
    let mut text = "<div class=\"wide\"><table><tr><th></th>".to_owned();
    for name in ["p50", "p90", "p99", "p99.9", "max"] {
        let _ = write!(text, "<th class=\"n\">{name}</th>");
    }
    text.push_str("</tr>");
    for run in &report.runs {
        if report.runs.len() > 1 {
            let _ = write!(
                text,
                "<tr><th colspan=\"6\">{}</th></tr>",
                escape(&run.settings.server)
            );
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

fn plot<'a>(
    report: &'a Report,
    heading: &'static str,
    distribution: impl Fn(&'a Run) -> &'a Vec<(f64, f64)>,
) -> (&'static str, String) {
    let lines = report.runs.iter();
    let plot = Plot {
        title: heading,
        x: Axis {
            name: "milliseconds",
            scale: Scale::Logarithmic,
        },
        y: Axis {
            name: "events that took no longer",
            scale: Scale::Share,
        },
        lines: lines
            .map(|run| (run.settings.server.as_str(), distribution(run).as_slice()))
            .collect(),
    };
    (heading, plot.legend() + &plot.svg())
}

fn throughput(report: &Report) -> (&'static str, String) {
    let lines = report.runs.iter();
    let plot = Plot {
        title: "Events a second over time",
        x: Axis {
            name: "seconds from the first write on",
            scale: Scale::Linear,
        },
        y: Axis {
            name: "events a second",
            scale: Scale::Linear,
        },
        lines: lines
            .map(|run| (run.settings.server.as_str(), run.throughput.as_slice()))
            .collect(),
    };
    ("Throughput", plot.legend() + &plot.svg())
}

fn ratios(report: &Report) -> String {
    let (Some(ratios), [first, second]) = (&report.ratios, report.runs.as_slice()) else {
        return String::new();
    };
    let (first, second) = (
        escape(&first.settings.server),
        escape(&second.settings.server),
    );
    let mut text = format!("<h2>{first} divided by {second}</h2><table>");
    for (name, ratio) in ratio_rows(ratios) {
        let _ = write!(
            text,
            "<tr><th>{name}</th><td class=\"n\">{ratio:.3}</td></tr>"
        );
    }
    text.push_str("</table>");
    text
}
