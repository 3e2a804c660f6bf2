//! The loop of the screen: keys, news, signals, drawing.

use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use kubefan_core::shutdown::Signals;
use kubefan_proxy::admin_client::AdminClient;
use ratatui::crossterm::event::Event;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

use super::key::Key;
use super::model::{Input, Model};
use super::render::render;
use super::terminal;
use super::terminal::Screen;
use crate::pages::{Feed, Update, one_line};

/// How often the screen is drawn without keys and news, because ages change.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows what a kubefan does until a key or a signal ends it.
///
/// # Errors
/// If the terminal can't be used. Without a connection to kubefan the screen says so.
pub(crate) async fn run(client: AdminClient) -> anyhow::Result<()> {
    let mut signals = Signals::of_process().context("cannot listen for signals")?;
    let started = Instant::now();
    let mut model = Model::new(client.url(), has_colour());
    let (sender, mut updates) = mpsc::channel(1);
    let mut feeding = pin!(Feed::new(client).run(sender));
    let mut redraw = interval(REDRAW);
    let mut screen = Screen::open().context("cannot use the terminal")?;
    let mut events = terminal::events().context("cannot read keys")?;
    if let Ok(size) = screen.size() {
        model.update(Input::Size(size.width, size.height), started.elapsed());
    }
    while !model.is_over {
        let now = started.elapsed();
        let drawn = screen.terminal().draw(|frame| render(&model, frame, now));
        drawn.context("cannot draw")?;
        let input = tokio::select! {
            _ = signals.next() => break,
            () = &mut feeding => break,
            event = events.recv() => match event {
                Some(event) => input_of(&event.context("cannot read keys")?),
                None => break,
            },
            Some(update) = updates.recv() => Some(input_of_update(update)),
            _ = redraw.tick() => None,
        };
        match input {
            Some(Input::Key(Key::Suspend)) => {
                screen.suspend().context("cannot use the terminal")?;
            }
            Some(input) => model.update(input, started.elapsed()),
            None => {}
        }
    }
    Ok(())
}

fn input_of(event: &Event) -> Option<Input> {
    match event {
        Event::Key(key) => Key::of(*key).map(Input::Key),
        Event::Resize(columns, rows) => Some(Input::Size(*columns, *rows)),
        _ => None,
    }
}

fn input_of_update(update: Update) -> Input {
    match update {
        Update::Reading(reading) => match reading.pages() {
            Ok(pages) => Input::Pages(Box::new(pages)),
            Err(error) => Input::Failed(one_line(&error)),
        },
        Update::Failed(problem) => Input::Failed(problem),
    }
}

/// Returns false if the user wants no colours (<https://no-color.org>).
fn has_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
