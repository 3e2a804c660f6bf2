//! Formats the demo's counts as a screen or as lines.

use std::time::Duration;

use kubefan_proxy::text::{bytes, number};

use crate::agents;
use crate::app::Totals;
use crate::config::DemoConfig;
use crate::load::times;

/// The facts about a demo that do not change while it runs.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) config: DemoConfig,
    pub(super) url: String,
    pub(super) admin_url: String,
    pub(super) simulated_url: String,
    pub(super) fault_url: String,
}

impl Facts {
    /// Returns the screen after `running`. No line is longer than 80 columns with the usual names.
    pub(super) fn screen(&self, totals: &Totals, running: Duration) -> Vec<String> {
        let title = format!("kubefan demo: {}", self.cluster());
        let clock = format!(
            "{:>pad$}",
            clock(running),
            pad = 79_usize.saturating_sub(title.len())
        );
        let mut lines = vec![title + &clock, String::new()];
        lines.extend(self.table(totals));
        lines.extend([
            String::new(),
            "Without kubefan, the API server would have served the first line.".to_owned(),
            format!(
                "Caches answered {} of {}.",
                number(totals.from_cache),
                count(totals.requests, "request"),
            ),
            String::new(),
            format!("API server  {}", away(totals)),
            format!("clients     {}", current(totals)),
            format!("            {}", unnoticed(totals)),
            String::new(),
            "f       cuts the API server off for 10 seconds: the clients go on".to_owned(),
            "Ctrl-C  stops the demo".to_owned(),
            String::new(),
        ]);
        lines.extend(self.suggestions());
        lines
    }

    /// Returns the text to print once if there is no screen.
    pub(super) fn introduction(&self) -> String {
        format!(
            "kubefan demo: {}, and {}\n\n\
             kubefan serves on {}\n\
             its metrics are on {}\n\
             simulated API server on {}\n\
             fault injection on {}\n\
             kubeconfig: {}, which is deleted at the end\n\n\
             {}\n\n\
             Cut the API server off for 10 seconds; the clients go on:\n  \
             curl -X POST '{}/faults/away?seconds=10'\n\n\
             Ctrl-C stops it.\n\n",
            self.cluster(),
            count(self.config.agents as u64, "client"),
            self.url,
            self.admin_url,
            self.simulated_url,
            self.fault_url,
            self.config.kubeconfig_out.display(),
            self.suggestions().join("\n"),
            self.fault_url,
        )
    }

    /// Returns the line to print every few seconds if there is no screen.
    pub(super) fn line(&self, totals: &Totals) -> String {
        let (got, served) = (&totals.got, &totals.served);
        let mut line = format!(
            "clients: {}, {} | API server: {}, {} ({})\n",
            count(got.watches, "watch"),
            count(got.events, "event"),
            number(served.watches),
            number(served.events),
            times(served.events as f64, got.events as f64),
        );
        if totals.away.is_some() || totals.views.current < totals.views.all {
            let (away, current) = (away(totals), current(totals));
            line.push_str(&format!("API server {away} | {current}\n"));
        }
        line
    }

    fn cluster(&self) -> String {
        format!(
            "{}, {}, {} a second",
            count(self.config.nodes as u64, "node"),
            count(self.config.pods as u64, "pod"),
            count(self.config.churn.into(), "change"),
        )
    }

    fn table(&self, totals: &Totals) -> [String; 4] {
        let row = |name: &str, cells: [String; 4]| {
            let [requests, watches, events, bytes] = cells;
            format!("{name:<22}{requests:>13}{watches:>13}{events:>14}{bytes:>13}")
        };
        let counts = |of: &agents::Totals| [of.requests, of.watches, of.events, of.bytes];
        let (got, served) = (counts(&totals.got), counts(&totals.served));
        let cells = |[requests, watches, events, sent]: [u64; 4]| {
            let [requests, watches, events] = [requests, watches, events].map(number);
            [requests, watches, events, bytes(sent)]
        };
        let ratios = std::array::from_fn(|at| {
            if served[at] > got[at] {
                // The clients have only just begun.
                "-".to_owned()
            } else {
                times(served[at] as f64, got[at] as f64)
            }
        });
        let clients = format!("{} got", count(self.config.agents as u64, "client"));
        let titles = ["requests", "watches", "events", "bytes"].map(str::to_owned);
        [
            row("", titles),
            row(&clients, cells(got)),
            row("the API server served", cells(served)),
            row("", ratios),
        ]
    }

    /// Returns commands to try. The cache answers the first of them.
    fn suggestions(&self) -> [String; 5] {
        let kubectl = format!(
            "  kubectl --kubeconfig {}",
            self.config.kubeconfig_out.display()
        );
        [
            "Try, in another terminal in this folder:".to_owned(),
            format!("{kubectl} get nodes"),
            format!("{kubectl} get deployments -A -w"),
            format!("  curl -i '{}/api/v1/namespaces?limit=1'", self.url),
            format!(
                "  curl -s {}/metrics | grep ^kubefan_requests",
                self.admin_url
            ),
        ]
    }
}

fn away(totals: &Totals) -> String {
    match totals.away {
        None => "answers".to_owned(),
        Some(left) => {
            let seconds = count(left.as_secs() + 1, "more second");
            format!("is cut off for {seconds}; the cluster still changes")
        }
    }
}

fn current(totals: &Totals) -> String {
    let views = &totals.views;
    let all = count(views.all as u64, "watch");
    let current = number(views.current as u64);
    format!("{current} of {all} show exactly the cluster's objects")
}

fn unnoticed(totals: &Totals) -> String {
    let ended = count(totals.got.ended, "watch");
    let refused = count(totals.got.refused, "request");
    format!("{ended} ended, {refused} refused and sent again")
}

/// Formats a count with its noun: `1 watch`, `2 watches`, `1,000 events`.
fn count(count: u64, noun: &str) -> String {
    let ending = match (count, noun.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{ending}", number(count))
}

/// Formats a duration as minutes and seconds.
fn clock(running: Duration) -> String {
    let seconds = running.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            config: DemoConfig {
                nodes: 50,
                pods: 1000,
                agents: 300,
                churn: 20,
                seed: 1,
                listen: "127.0.0.1:8001".parse().expect("an address"),
                kubeconfig_out: "kubefan-demo.kubeconfig".into(),
            },
            url: "http://127.0.0.1:8001".to_owned(),
            admin_url: "http://127.0.0.1:8002".to_owned(),
            simulated_url: "http://127.0.0.1:8003".to_owned(),
            fault_url: "http://127.0.0.1:8004".to_owned(),
        }
    }

    fn totals() -> Totals {
        let mut totals = Totals::default();
        let (got, served) = (&mut totals.got, &mut totals.served);
        (got.requests, got.watches, got.ended) = (1_234_567, 707, 1);
        (got.events, got.bytes) = (12_345_678_901, 180_300_000_000);
        (served.requests, served.watches) = (230, 1);
        (served.events, served.bytes) = (1_180, 2_100_000);
        (totals.views.current, totals.views.all) = (706, 707);
        (totals.from_cache, totals.requests) = (1_234_560, 1_234_567);
        totals
    }

    #[test]
    fn the_screen_fits_an_old_terminal() {
        let screen = facts().screen(&totals(), Duration::from_secs(83));
        assert!(screen.len() < 24, "{screen:#?}");
        for line in &screen {
            assert!(line.chars().count() < 80, "{line}");
        }
        assert!(screen[0].ends_with("1:23"), "{}", screen[0]);
        assert!(facts().introduction().lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn the_gain_is_a_ratio() {
        let screen = facts().screen(&totals(), Duration::ZERO).join("\n");
        for part in [
            "300 clients got",
            "12,345,678,901",
            "180.3 GB",
            "5368x less",
            "707x less",
            "Caches answered 1,234,560 of 1,234,567 requests.",
            "706 of 707 watches show exactly the cluster's objects",
            "1 watch ended, 0 requests refused",
        ] {
            assert!(screen.contains(part), "{part}: {screen}");
        }
    }

    #[test]
    fn a_line_says_more_only_if_something_is_wrong() {
        let mut totals = totals();
        totals.views.current = 707;
        let line = facts().line(&totals);
        assert_eq!(line.lines().count(), 1, "{line}");
        totals.away = Some(Duration::from_millis(9_100));
        let line = facts().line(&totals);
        assert!(line.contains("is cut off for 10 more seconds"), "{line}");
    }

    #[test]
    fn nouns_have_their_plurals() {
        for (of, noun, expected) in [
            (1, "watch", "1 watch"),
            (0, "watch", "0 watches"),
            (1_000, "event", "1,000 events"),
            (1, "event", "1 event"),
        ] {
            assert_eq!(count(of, noun), expected);
        }
    }

    /// Checks that README.md shows the screen, with other numbers.
    #[test]
    fn the_readme_shows_the_screen() {
        let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
        let readme = std::fs::read_to_string(readme).expect("README.md");
        let (_, block) = readme.split_once("```text\n").expect("a block");
        let (block, _) = block.split_once("```").expect("the end of the block");
        let mut totals = totals();
        (totals.got.ended, totals.got.bytes) = (0, 180_250_000);
        totals.got.events = 61_200;
        let screen = facts().screen(&totals, Duration::from_secs(83));
        let words = |text: &str| {
            let is_number = |word: &&str| !word.starts_with(|first: char| first.is_ascii_digit());
            let words = text.split_whitespace().filter(is_number);
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words(block), words(&screen.join("\n")));
    }
}
