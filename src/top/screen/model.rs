//! Model: what the screen shows, and how keys and news change it. Pure: the time is an argument.

use std::rc::Rc;
use std::time::Duration;

use super::key::Key;
use super::lines::detail_lines;
use crate::pages::Pages;
use crate::tables::{Content, Rates, Row, Table, View};
use crate::text;

/// What changes the model.
pub(super) enum Input {
    Key(Key),
    Pages(Box<Pages>),
    /// kubefan has shown nothing; the text says why.
    Failed(String),
    /// The terminal has this number of columns and rows.
    Size(u16, u16),
}

/// What the screen shows. Times are those since the start of the program.
pub(super) struct Model {
    pub(super) url: String,
    pub(super) has_colour: bool,
    pub(super) view: View,
    pub(super) mode: Mode,
    /// Only rows that have this text are shown, in all views.
    pub(super) filter: String,
    pub(super) is_paused: bool,
    pub(super) is_over: bool,
    /// What is shown; `None` before kubefan has shown anything.
    pub(super) shown: Option<Rc<News>>,
    /// Newer than `shown` during a pause.
    newest: Option<Rc<News>>,
    pub(super) problem: Option<Problem>,
    choices: [Choice; View::ALL.len()],
    columns: usize,
    rows: usize,
}

/// What a kubefan has shown, and when.
pub(super) struct News {
    pub(super) pages: Pages,
    pub(super) rates: Rates,
    pub(super) at: Duration,
}

/// Why there are no news.
pub(super) struct Problem {
    pub(super) text: String,
    pub(super) since: Duration,
}

/// What keys do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys are commands.
    Table,
    /// Keys are the text of the filter.
    Filter,
    /// The details of the selected row are shown, from this line on.
    Details(usize),
    Help,
}

/// What was chosen in a view.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) sorted_by: usize,
    /// False if the order is reversed.
    pub(super) is_usual: bool,
    /// The key of the selected row, and its position. `None` selects the first row, whichever it is.
    selected: Option<(String, usize)>,
}

// === impl Model ===

impl Model {
    pub(super) fn new(url: &str, has_colour: bool) -> Self {
        Self {
            url: url.to_owned(),
            has_colour,
            view: View::Caches,
            mode: Mode::Table,
            filter: String::new(),
            is_paused: false,
            is_over: false,
            shown: None,
            newest: None,
            problem: None,
            choices: View::ALL.map(|view| Choice {
                sorted_by: view.sorted_by(),
                is_usual: true,
                selected: None,
            }),
            columns: 80,
            rows: 24,
        }
    }

    /// Changes the model by `input`, which came at the time `now`.
    pub(super) fn update(&mut self, input: Input, now: Duration) {
        match input {
            Input::Key(key) => self.press(key),
            Input::Pages(pages) => self.take(*pages, now),
            Input::Failed(text) => {
                let since = self.problem.as_ref().map_or(now, |problem| problem.since);
                let text = text::harmless(&text);
                self.problem = Some(Problem { text, since });
            }
            Input::Size(columns, rows) => {
                (self.columns, self.rows) = (columns.into(), rows.into());
            }
        }
    }

    fn take(&mut self, pages: Pages, now: Duration) {
        let rates = self.newest.as_ref().map(|before| {
            let elapsed = now.saturating_sub(before.at);
            Rates::between(&before.pages.snapshot, &pages.snapshot, elapsed)
        });
        let news = Rc::new(News {
            pages,
            rates: rates.unwrap_or_default(),
            at: now,
        });
        self.problem = None;
        self.newest = Some(Rc::clone(&news));
        if !self.is_paused || self.shown.is_none() {
            self.shown = Some(news);
        }
    }

    /// Returns what was chosen in the view that is shown.
    pub(super) fn choice(&self) -> &Choice {
        &self.choices[self.view as usize]
    }

    fn choice_mut(&mut self) -> &mut Choice {
        &mut self.choices[self.view as usize]
    }

    /// Returns what the view shows, sorted and filtered, or `None` before kubefan has shown anything.
    pub(super) fn content(&self) -> Option<Content> {
        let news = self.shown.as_ref()?;
        let mut content = self.view.content(&news.pages, &news.rates);
        if let Content::Table(table) = &mut content {
            let choice = self.choice();
            table.sort(choice.sorted_by, choice.is_usual);
            table.filter(&self.filter);
        }
        Some(content)
    }

    /// Returns the position of the selected row of `table`, which has at least one.
    pub(super) fn selected(&self, table: &Table) -> usize {
        let Some((key, position)) = &self.choice().selected else {
            return 0;
        };
        let found = table.rows.iter().position(|row| row.key == *key);
        found.unwrap_or_else(|| (*position).min(table.rows.len().saturating_sub(1)))
    }

    /// Returns the selected row, if it is still there.
    pub(super) fn selected_row(&self) -> Option<Row> {
        let Content::Table(table) = self.content()? else {
            return None;
        };
        let mut rows = table.rows.into_iter();
        match &self.choice().selected {
            Some((key, _)) => rows.find(|row| row.key == *key),
            None => rows.next(),
        }
    }

    fn press(&mut self, key: Key) {
        match (self.mode, key) {
            (_, Key::Interrupt) => self.is_over = true,
            (Mode::Table, key) => self.command(key),
            (Mode::Filter, key) => self.edit_filter(key),
            (Mode::Details(first), key) => self.scroll(first, key),
            (Mode::Help, _) => self.mode = Mode::Table,
        }
    }

    fn command(&mut self, key: Key) {
        let page = self.rows.saturating_sub(8).max(1);
        match key {
            Key::Character('q') => self.is_over = true,
            Key::Character(digit @ '1'..='4') => {
                let index = usize::from(digit as u8 - b'1');
                self.view = View::ALL[index];
            }
            Key::Tab | Key::Right => self.turn(1),
            Key::BackTab | Key::Left => self.turn(View::ALL.len() - 1),
            Key::Up | Key::Character('k') => self.select(|row| row.saturating_sub(1)),
            Key::Down | Key::Character('j') => self.select(|row| row + 1),
            Key::PageUp => self.select(|row| row.saturating_sub(page)),
            Key::PageDown => self.select(|row| row + page),
            Key::Home => self.choice_mut().selected = None,
            Key::End => self.select(|_| usize::MAX),
            Key::Character('s') => {
                let columns = self.view.columns().len();
                let choice = self.choice_mut();
                choice.sorted_by = (choice.sorted_by + 1) % columns;
                choice.is_usual = true;
            }
            Key::Character('S') => {
                let choice = self.choice_mut();
                choice.is_usual = !choice.is_usual;
            }
            Key::Character('/') => self.mode = Mode::Filter,
            Key::Character('p' | ' ') => self.pause(),
            Key::Character('?' | 'h') => self.mode = Mode::Help,
            Key::Enter => {
                // The details stay those of the row, wherever it moves.
                self.select(|row| row);
                if self.selected_row().is_some() {
                    self.mode = Mode::Details(0);
                }
            }
            Key::Escape => self.filter.clear(),
            _ => {}
        }
    }

    /// Shows the view that comes `by` views later.
    fn turn(&mut self, by: usize) {
        self.view = View::ALL[(self.view as usize + by) % View::ALL.len()];
    }

    /// Selects the row at the position that `moved` returns for the present one, or the last one.
    fn select(&mut self, moved: impl FnOnce(usize) -> usize) {
        let Some(Content::Table(table)) = self.content() else {
            return;
        };
        let position = moved(self.selected(&table)).min(table.rows.len().saturating_sub(1));
        let row = table.rows.get(position);
        self.choice_mut().selected = row.map(|row| (row.key.clone(), position));
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.shown.clone_from(&self.newest);
        }
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Character(character) => {
                self.filter
                    .push_str(&text::harmless(&character.to_string()));
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.mode = Mode::Table,
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            _ => {}
        }
    }

    /// Moves the details, which begin at the line `first`.
    fn scroll(&mut self, first: usize, key: Key) {
        let page = self.rows.saturating_sub(5).max(1);
        let wanted = match key {
            Key::Up | Key::Character('k') => first.saturating_sub(1),
            Key::Down | Key::Character('j') => first + 1,
            Key::PageUp => first.saturating_sub(page),
            Key::PageDown => first + page,
            Key::Home => 0,
            Key::End => usize::MAX,
            Key::Enter | Key::Escape | Key::Character('q') => {
                self.mode = Mode::Table;
                return;
            }
            Key::Character('p' | ' ') => {
                self.pause();
                return;
            }
            _ => return,
        };
        let row = self.selected_row();
        let lines = row.map_or(0, |row| detail_lines(&row.details, self.columns).len());
        self.mode = Mode::Details(wanted.min(lines.saturating_sub(page)));
    }
}
