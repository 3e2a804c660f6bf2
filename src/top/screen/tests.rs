//! Tests of the screen: keys and news, and what is drawn then.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use serde_json::json;

use super::key::Key;
use super::model::{Input, Mode, Model};
use super::render::render;
use crate::pages::Page;
use crate::pages::samples::reading;
use crate::tables::View;

const URL: &str = "http://127.0.0.1:8002";
const KEYS: &str = "1-4 view  s S sort  / filter  p pause  Enter details  ? help  q quit";

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn buffer(model: &Model, width: u16, height: u16, now: Duration) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let drawn = terminal.draw(|frame| render(model, frame, now));
    drawn.expect("it is drawn");
    terminal.backend().buffer().clone()
}

/// Returns the lines of the screen without the spaces at their ends.
fn drawn(model: &Model, width: u16, height: u16, now: Duration) -> Vec<String> {
    let buffer = buffer(model, width, height, now);
    let lines = buffer.content().chunks(usize::from(width));
    lines
        .map(|cells| {
            let line: String = cells.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

/// Returns a model that has taken the sample at the time 0.
fn model() -> Model {
    let mut model = Model::new(URL, true);
    take(&mut model, |_| {}, seconds(0));
    model
}

/// Passes the sample with a change to the model.
fn take(model: &mut Model, change: impl FnOnce(&mut crate::pages::Reading), now: Duration) {
    let mut reading = reading();
    change(&mut reading);
    let pages = reading.pages().expect("pages");
    model.update(Input::Pages(Box::new(pages)), now);
}

fn press(model: &mut Model, key: Key) {
    model.update(Input::Key(key), seconds(0));
}

/// Presses a key for each character.
fn enter(model: &mut Model, text: &str) {
    for character in text.chars() {
        press(model, Key::Character(character));
    }
}

#[test]
fn each_view_is_drawn() {
    let mut model = model();
    take(
        &mut model,
        |reading| {
            reading.snapshot["caches"]["requests"][0]["cache"] = json!(990);
            reading.snapshot["caches"]["items"][0]["eventsTotal"] = json!(420);
        },
        seconds(1),
    );
    let expected = [
        "kubefan 0.2.0  http://127.0.0.1:8002  the API server responds  1/2 caches live",
        "memory 300 MiB of 2.0 GiB  requests 20/s  97% of 1020 from caches  watches 8  sa",
        "[1 caches 2]  2 clients 2   3 requests 5   4 advice 1",
        "  RESOURCE          STATE  OBJECTS     SIZE      LOG  WATCHES  EVENTS/S  CHANGED",
        "> pods              live       12k  3.0 MiB  2.0 KiB        7      20/s       0s",
        "  deployments.apps  stale        2    900 B      0 B        0     0.0/s        -",
        "",
        "1-4 view  s S sort  / filter  p pause  Enter details  ? help  q quit  by SIZE",
    ];
    assert_eq!(drawn(&model, 80, 8, seconds(1)), expected);
    for (key, tabs, table) in [
        (
            '2',
            " 1 caches 2  [2 clients 2]  3 requests 5   4 advice 1",
            [
                "  ADDRESS        USER          AGENT        WATCHES     BEHIND     HELD   UNREAD",
                "> 10.0.0.1:5000  system:node…  agent/v1 \u{fffd}x        2  slow: 20k   64 KiB  1.0 KiB",
                "  10.0.0.2:5000  #8            <none>             0          0  4.0 KiB      0 B",
            ],
        ),
        (
            '3',
            " 1 caches 2   2 clients 2  [3 requests 5]  4 advice 1",
            [
                "  USER        AGENT     REQ/MIN  CACHED  SAVED  ERRORS  WATCHES  EVENTS    BYTES",
                "> system:no…  agent/v1      100     29%    12s       3        2      30  4.0 MiB",
                "  10.0.0.9    <none>          0       -  0.00s       0        0       0      0 B",
            ],
        ),
        (
            '4',
            " 1 caches 2   2 clients 2   3 requests 5  [4 advice 1]",
            [
                "  ADVICE    USER  AGENT       EVIDENCE                       FIX",
                "> listLoop  #8    kubectl/v1  90 LISTs a minute of all pods  use a watch",
                "",
            ],
        ),
    ] {
        press(&mut model, Key::Character(key));
        let drawn = drawn(&model, 80, 8, seconds(1));
        assert_eq!(drawn[2], tabs);
        assert_eq!(drawn[3..6], table);
    }
}

#[test]
fn narrow_terminals_show_the_first_columns() {
    let expected = [
        "  RESOURCE       STATE  OBJECTS     SIZE",
        "> pods           live       12k  3.0 MiB",
        "  deployments.…  stale        2    900 B",
    ];
    assert_eq!(drawn(&model(), 40, 10, seconds(0))[3..6], expected);
}

#[test]
fn no_size_of_the_terminal_and_no_key_is_a_problem() {
    let keys = [
        Key::Enter,
        Key::Escape,
        Key::Tab,
        Key::BackTab,
        Key::Left,
        Key::Right,
        Key::Up,
        Key::Down,
        Key::PageUp,
        Key::PageDown,
        Key::Home,
        Key::End,
        Key::Backspace,
        Key::Suspend,
        Key::Character('s'),
        Key::Character('S'),
        Key::Character('p'),
        Key::Character('?'),
        Key::Character('x'),
        Key::Character('/'),
    ];
    for mut model in [Model::new(URL, false), model()] {
        model.update(Input::Failed("away".to_owned()), seconds(0));
        // Each key after each other one.
        for (first, second) in keys
            .iter()
            .flat_map(|key| keys.map(|second| (*key, second)))
        {
            press(&mut model, first);
            press(&mut model, second);
            for (width, height) in [(1, 1), (3, 2), (9, 5), (30, 3), (80, 24)] {
                model.update(Input::Size(width, height), seconds(0));
                let lines = drawn(&model, width, height, seconds(9)).len();
                assert_eq!(lines, usize::from(height));
            }
        }
        assert!(!model.is_over);
    }
}

#[test]
fn keys_choose_the_view_and_the_order() {
    let mut model = model();
    for (key, view) in [
        (Key::Character('3'), View::Requests),
        (Key::Tab, View::Advice),
        (Key::Right, View::Caches),
        (Key::Left, View::Advice),
        (Key::BackTab, View::Requests),
        (Key::Character('5'), View::Requests),
        (Key::Character('1'), View::Caches),
    ] {
        press(&mut model, key);
        assert_eq!(model.view, view);
    }
    let first = |model: &Model| model.selected_row().map(|row| row.cells[0].text.clone());
    let row = |name: &str| Some(name.to_owned());
    // The largest, and the smallest.
    assert_eq!(first(&model), row("pods"));
    enter(&mut model, "S");
    assert_eq!(first(&model), row("deployments.apps"));
    let bottom = drawn(&model, 100, 8, seconds(0)).pop();
    assert_eq!(bottom, Some(format!("{KEYS}  by SIZE reversed")));
    // The next columns: LOG, and after the last one RESOURCE.
    enter(&mut model, "s");
    let bottom = drawn(&model, 100, 8, seconds(0)).pop();
    assert_eq!(bottom, Some(format!("{KEYS}  by LOG")));
    assert_eq!(first(&model), row("pods"));
    enter(&mut model, "ssssss");
    assert_eq!(first(&model), row("deployments.apps"));
    // Each view has its own order.
    enter(&mut model, "2");
    assert_eq!(first(&model), row("10.0.0.1:5000"));
}

#[test]
fn the_selection_follows_its_row() {
    let mut model = model();
    press(&mut model, Key::Down);
    let selected = |model: &Model| model.selected_row().map(|row| row.cells[0].text.clone());
    assert_eq!(selected(&model).as_deref(), Some("deployments.apps"));
    // The rows change places.
    enter(&mut model, "S");
    assert_eq!(selected(&model).as_deref(), Some("deployments.apps"));
    let lines = drawn(&model, 80, 8, seconds(0));
    assert!(lines[4].starts_with("> deployments.apps"), "{lines:#?}");
    // The row is gone, so another one is marked.
    let only_pods = |reading: &mut crate::pages::Reading| {
        let items = reading.snapshot["caches"]["items"].as_array_mut();
        items.expect("caches").truncate(1);
    };
    take(&mut model, only_pods, seconds(1));
    assert_eq!(selected(&model), None);
    let lines = drawn(&model, 80, 8, seconds(1));
    assert!(lines[4].starts_with("> pods"), "{lines:#?}");
    press(&mut model, Key::Enter);
    assert_eq!(selected(&model).as_deref(), Some("pods"));
}

#[test]
fn long_tables_show_the_selected_row() {
    let mut model = Model::new(URL, true);
    let many = |reading: &mut crate::pages::Reading| {
        let items = (0..30).map(|number| {
            json!({"cache": {"resource": format!("r{number:02}")}, "objectBytes": 100 - number})
        });
        reading.snapshot["caches"]["items"] = items.collect();
    };
    take(&mut model, many, seconds(0));
    let rows = |model: &Model| -> Vec<String> {
        let lines = drawn(model, 40, 10, seconds(0));
        let lines = lines[4..9].iter().map(|line| line[..5].to_owned());
        lines.collect()
    };
    assert_eq!(rows(&model), ["> r00", "  r01", "  r02", "  r03", "  r04"]);
    for _ in 0..6 {
        press(&mut model, Key::Down);
    }
    assert_eq!(rows(&model), ["  r02", "  r03", "  r04", "  r05", "> r06"]);
    press(&mut model, Key::End);
    assert_eq!(rows(&model), ["  r25", "  r26", "  r27", "  r28", "> r29"]);
    press(&mut model, Key::Home);
    assert_eq!(rows(&model)[0], "> r00");
}

#[test]
fn a_filter_applies_to_all_views_until_escape() {
    let mut model = model();
    enter(&mut model, "/STALq");
    press(&mut model, Key::Backspace);
    assert_eq!((model.mode, model.filter.as_str()), (Mode::Filter, "STAL"));
    let lines = drawn(&model, 80, 8, seconds(0));
    assert!(lines[4].starts_with("> deployments"), "{lines:#?}");
    assert_eq!(lines[7], "filter: STAL_  Enter keeps it, Esc clears it");
    press(&mut model, Key::Enter);
    let lines = drawn(&model, 80, 8, seconds(0));
    assert!(
        lines[7].starts_with("filter: STAL (Esc clears)"),
        "{lines:#?}"
    );
    enter(&mut model, "2");
    let lines = drawn(&model, 80, 8, seconds(0));
    assert_eq!(lines[4], "none with \"STAL\"");
    press(&mut model, Key::Escape);
    assert_eq!(model.filter, "");
    enter(&mut model, "/\u{202e}");
    assert_eq!(model.filter, "\u{fffd}");
    press(&mut model, Key::Escape);
    assert_eq!((model.mode, model.filter.as_str()), (Mode::Table, ""));
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut model = model();
    enter(&mut model, "p");
    let more = |reading: &mut crate::pages::Reading| {
        reading.snapshot["caches"]["items"][0]["objects"] = json!(13_000);
    };
    take(&mut model, more, seconds(1));
    let lines = drawn(&model, 90, 8, seconds(3));
    assert!(
        lines[0].starts_with("PAUSED for 3s  kubefan 0.2.0"),
        "{lines:#?}"
    );
    assert!(lines[4].contains(" 12k "), "{lines:#?}");
    enter(&mut model, " ");
    let lines = drawn(&model, 90, 8, seconds(3));
    assert!(lines[0].starts_with("kubefan 0.2.0"), "{lines:#?}");
    assert!(lines[4].contains(" 13k "), "{lines:#?}");
}

#[test]
fn a_lost_connection_is_shown_with_the_age_of_the_data() {
    let mut model = Model::new(URL, true);
    assert_eq!(
        drawn(&model, 60, 4, seconds(0))[..3],
        [
            URL,
            "[1 caches -]  2 clients -   3 requests -   4 advice -",
            "Waiting for kubefan."
        ]
    );
    let failed = || Input::Failed("cannot reach\u{1b} kubefan".to_owned());
    model.update(failed(), seconds(1));
    let lines = drawn(&model, 60, 6, seconds(1));
    assert_eq!(lines[1], "NO DATA: cannot reach\u{fffd} kubefan");
    take(&mut model, |_| {}, seconds(10));
    model.update(failed(), seconds(11));
    let has_problem = |model: &Model, now| {
        let lines = drawn(model, 80, 10, seconds(now));
        lines[2].starts_with("NO CONNECTION")
    };
    // Each stream ends after some time, and another one follows.
    assert!(!has_problem(&model, 13));
    model.update(failed(), seconds(13));
    let lines = drawn(&model, 80, 10, seconds(24));
    assert_eq!(
        lines[2],
        "NO CONNECTION, data of 14s ago: cannot reach\u{fffd} kubefan"
    );
    assert!(lines[5].starts_with("> pods"), "{lines:#?}");
    take(&mut model, |_| {}, seconds(25));
    assert!(!has_problem(&model, 25));
}

#[test]
fn a_view_without_its_page_says_so() {
    let mut model = model();
    take(
        &mut model,
        |reading| reading.bill = Page::Absent,
        seconds(1),
    );
    enter(&mut model, "3");
    let lines = drawn(&model, 80, 8, seconds(1));
    assert_eq!(
        lines[2],
        " 1 caches 2   2 clients 2  [3 requests -]  4 advice 1"
    );
    assert_eq!(lines[3], "This kubefan does not show requests.");
}

#[test]
fn details_can_be_scrolled() {
    let mut model = model();
    model.update(Input::Size(60, 10), seconds(0));
    press(&mut model, Key::Enter);
    let lines = |model: &Model| drawn(model, 60, 10, seconds(0));
    assert_eq!(lines(&model)[3], "resource                pods");
    assert_eq!(lines(&model)[9], "up/down scroll  p pause  Esc back");
    press(&mut model, Key::Down);
    assert_eq!(lines(&model)[3], "API version             v1");
    press(&mut model, Key::End);
    assert!(
        lines(&model)[7].starts_with("selections that differ"),
        "{:#?}",
        lines(&model)
    );
    press(&mut model, Key::Down);
    assert!(
        lines(&model)[7].starts_with("selections that differ"),
        "{:#?}",
        lines(&model)
    );
    press(&mut model, Key::Home);
    assert_eq!(model.mode, Mode::Details(0));
    enter(&mut model, "q");
    assert_eq!(model.mode, Mode::Table);
    assert!(!model.is_over);
}

#[test]
fn help_and_quitting() {
    let mut model = model();
    enter(&mut model, "?");
    let lines = drawn(&model, 80, 24, seconds(0));
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("q, Ctrl-C      quit")),
        "{lines:#?}"
    );
    enter(&mut model, "q");
    assert!(!model.is_over);
    enter(&mut model, "q");
    assert!(model.is_over);
    for mode_keys in ["", "/", "?"] {
        let mut model = self::model();
        enter(&mut model, mode_keys);
        press(&mut model, Key::Interrupt);
        assert!(model.is_over, "{mode_keys}");
    }
}

#[test]
fn trouble_has_a_colour_unless_the_user_wants_none() {
    for (has_colour, expected) in [(true, Color::Red), (false, Color::Reset)] {
        let mut model = Model::new(URL, has_colour);
        take(&mut model, |_| {}, seconds(0));
        let buffer = buffer(&model, 80, 8, seconds(0));
        let cell = buffer.cell((20, 5)).expect("a cell");
        assert_eq!((cell.symbol(), cell.fg), ("s", expected));
        assert!(cell.modifier.contains(Modifier::BOLD));
        let selected = buffer.cell((0, 4)).expect("a cell");
        assert!(selected.modifier.contains(Modifier::REVERSED));
    }
}
