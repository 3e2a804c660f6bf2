//! Tests of what the views show.

use serde_json::{Value, json};

use super::*;
use crate::pages::samples::reading;
use crate::pages::{Page, Reading};
use crate::text;

fn printed(view: View, reading: &Reading) -> String {
    let pages = reading.pages().expect("pages");
    let content = view.content(&pages, &Rates::default());
    content.plain(view.sorted_by())
}

#[test]
fn each_view_is_printed_as_a_table() {
    for (view, expected) in [
        (
            View::Caches,
            "\
RESOURCE           STATE   OBJECTS   SIZE      LOG       WATCHES   CHANGED   FORMAT          SCOPE
pods               live    12k       3.0 MiB   2.0 KiB   7         0s        protobuf        all
deployments.apps   stale   2         900 B     0 B       0         -         json metadata   -n shop -l app=\u{fffd}[2Jweb
",
        ),
        (
            View::Clients,
            "\
ADDRESS         USER                   AGENT         WATCHES   BEHIND      HELD      UNREAD    REQUESTS   AGE
10.0.0.1:5000   system:node:a\u{fffd}         agent/v1 \u{fffd}x   2         slow: 20k   64 KiB    1.0 KiB   3          61m
10.0.0.2:5000   #8                     <none>        0         0           4.0 KiB   0 B       0          5s
",
        ),
        (
            View::Requests,
            "\
USER             AGENT      REQ/MIN   CACHED   SAVED   ERRORS   WATCHES   EVENTS   BYTES     OBJECTS   CPU
system:node:a\u{fffd}   agent/v1   100       29%      12s     3        2         30       4.0 MiB   5000      0.25s
10.0.0.9         <none>     0         -        0.00s   0        0         0        0 B       0         0.00s
",
        ),
        (
            View::Advice,
            "\
ADVICE     USER   AGENT        EVIDENCE                        FIX
listLoop   #8     kubectl/v1   90 LISTs a minute of all pods   use a watch
",
        ),
    ] {
        let found = printed(view, &reading());
        // The widths of columns are those of the longest cells; tests of the layout check them.
        let words = |text: &str| -> Vec<Vec<String>> {
            let lines = text.lines();
            let words = lines.map(|line| line.split("  ").map(str::trim).map(str::to_owned));
            words
                .map(|words| words.filter(|word| !word.is_empty()).collect())
                .collect()
        };
        assert_eq!(words(&found), words(expected), "{found}");
    }
}

#[test]
fn a_view_without_its_page_says_so() {
    let mut reading = reading();
    reading.bill = Page::Absent;
    reading.advice = Page::Failed("kubefan answered 403: \u{1b}[2J".to_owned());
    assert_eq!(
        printed(View::Requests, &reading),
        "This kubefan does not show requests.\n"
    );
    assert_eq!(
        printed(View::Advice, &reading),
        "The advice can't be read: kubefan answered 403: \u{fffd}[2J\n"
    );
    reading.bill = Page::Shown(json!({"clients": 7}));
    let malformed = printed(View::Requests, &reading);
    assert!(
        malformed.contains("kubefan top cannot read it"),
        "{malformed}"
    );
    let pages = reading.pages().expect("pages");
    let totals = View::ALL.map(|view| view.total(&pages));
    assert_eq!(totals, [Some(2), Some(2), None, None]);
}

#[test]
fn without_names_users_have_numbers() {
    let mut reading = reading();
    reading.users = Page::Failed("kubefan answered 403".to_owned());
    let clients = printed(View::Clients, &reading);
    assert!(
        clients.contains(" #7 ") && clients.contains(" #8 "),
        "{clients}"
    );
}

#[test]
fn fields_of_other_versions_are_no_problem() {
    let newer = json!({
        "further": {"a": 1},
        "caches": {"items": [{"cache": {"resource": "pods", "further": 1}, "state": "resting"}]},
    });
    let reading = Reading {
        snapshot: newer,
        bill: Page::Absent,
        advice: Page::Absent,
        users: Page::Absent,
    };
    let caches = printed(View::Caches, &reading);
    assert!(caches.contains("pods       resting"), "{caches}");
    let nonsense = Reading {
        snapshot: json!("text"),
        ..reading
    };
    assert!(nonsense.pages().is_err());
}

/// Returns the details of the first row.
fn details(view: View) -> Vec<(&'static str, String)> {
    let pages = reading().pages().expect("pages");
    match view.content(&pages, &Rates::default()) {
        Content::Table(mut table) => table.rows.remove(0).details,
        Content::Nothing(problem) => panic!("{problem}"),
    }
}

#[test]
fn details_are_complete_and_harmless() {
    for (view, expected) in [
        (
            View::Caches,
            &["12345 with 3.0 MiB", "watching for 90s", "barrier, 3s ago"][..],
        ),
        (
            View::Clients,
            &[
                "system:node:a\u{fffd}",
                "of pods, behind by 20000 events for 12s",
            ],
        ),
        (
            View::Requests,
            &[
                "30 secrets",
                "100 requests, 29 from caches, 71 forwarded",
                "; 3 answers with 403",
                "list deployments.apps by label",
                "watch of pods waits for 12s with 9 events",
                "listLoop: it lists. use a watch.",
                "900 seats, about 12s of CPU time",
            ],
        ),
        (
            View::Advice,
            &["90 LISTs a minute of all pods", "kubectl/v1"],
        ),
    ] {
        let details = details(view);
        for part in expected {
            let has = details.iter().any(|(_, value)| value.contains(part));
            assert!(has, "{part}: {details:?}");
        }
        let all_harmless = details
            .iter()
            .all(|(_, value)| text::harmless(value) == *value);
        assert!(all_harmless, "{details:?}");
    }
}

#[test]
fn the_lines_above_the_tables_call_trouble_by_name() {
    let texts = |parts: Vec<Part>| -> Vec<(String, Tone)> {
        parts
            .into_iter()
            .map(|part| (part.text, part.tone))
            .collect()
    };
    let usual = |text: &str| (text.to_owned(), Tone::Usual);
    let trouble = |text: &str| (text.to_owned(), Tone::Trouble);
    let mut reading = reading();
    let pages = reading.pages().expect("pages");
    assert_eq!(
        texts(state(&pages, "http://127.0.0.1:8002")),
        [
            usual("kubefan 0.2.0"),
            usual("http://127.0.0.1:8002"),
            usual("the API server responds"),
            trouble("1/2 caches live"),
        ]
    );
    assert_eq!(
        texts(counts(&pages, &Rates::default())),
        [
            usual("memory 300 MiB of 2.0 GiB"),
            usual("97% of 1000 from caches"),
            usual("watches 8"),
            usual("saved 970 requests, 12k objects, 0 events, about 13s of CPU time"),
        ]
    );
    reading.bill = Page::Absent;
    reading.snapshot["caches"]["items"][1]["state"] = json!("syncing");
    reading.snapshot["caches"]["total"] = json!(3);
    reading.snapshot["caches"]["upstreamResponding"] = Value::Bool(false);
    reading.snapshot["memory"]["residentBytes"] = json!(1_900_u64 << 20);
    let pages = reading.pages().expect("pages");
    let state = texts(state(&pages, ""));
    assert_eq!(state[2], trouble("the API server does NOT respond"));
    let some = ("1/2 of the largest caches live".to_owned(), Tone::Warning);
    assert_eq!(state[3], some);
    let rates = Rates {
        requests: Some(12.3),
        ..Rates::default()
    };
    let counts = texts(counts(&pages, &rates));
    assert_eq!(counts[0], trouble("memory 1.9 GiB of 2.0 GiB: HIGH"));
    assert_eq!(counts[1], usual("requests 12/s"));
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[test]
fn the_json_has_the_pages_that_there_are() {
    let mut reading = reading();
    reading.advice = Page::Absent;
    let json = reading.into_json();
    assert_eq!(json["version"], "0.2.0");
    assert_eq!(json["bill"]["seconds"], 600.0);
    assert_eq!(json["users"]["total"], 1);
    assert_eq!(json.get("advice"), None);
}

#[test]
fn the_report_has_the_lines_above_and_all_tables() {
    let mut reading = reading();
    reading.advice = Page::Absent;
    let report = report(&reading.pages().expect("pages"), "http://127.0.0.1:8002");
    let expected = "kubefan 0.2.0  http://127.0.0.1:8002  the API server responds  \
                    1/2 caches live\n\
                    memory 300 MiB of 2.0 GiB  97% of 1000 from caches  watches 8  \
                    saved 970 requests, 12k objects, 0 events, about 13s of CPU time\n\n\
                    CACHES 2\nRESOURCE ";
    assert!(report.starts_with(expected), "{report}");
    for part in [
        "\n\nCLIENTS 2\nADDRESS ",
        "\n\nREQUESTS 5\nUSER ",
        "\n\nADVICE -\nThis kubefan does not show advice.\n",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert_eq!(
        text::harmless(&report.replace('\n', " ")),
        report.replace('\n', " ")
    );
}
