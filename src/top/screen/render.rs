//! The model as cells of a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::lines::{HELP, detail_lines, fitted};
use super::model::{Mode, Model, News, Problem};
use crate::tables::{Content, GAP, Part, Table, Tone, View, counts, shown, state, widths};
use crate::text;

/// What is before the selected row, and before the others.
const MARKS: [&str; 2] = ["> ", "  "];
const KEYS: &str = "1-4 view  s S sort  / filter  p pause  Enter details  ? help  q quit";
/// A connection that was away for less than this time is not mentioned. kubefan ends each stream
/// after some time.
const BRIEF: Duration = Duration::from_secs(3);

/// A part of the screen that is written line by line. What does not fit is cut off.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    has_colour: bool,
}

/// Draws the model as it is at the time `now`.
pub(super) fn render(model: &Model, frame: &mut Frame<'_>, now: Duration) {
    let mut canvas = Canvas {
        area: frame.area(),
        buffer: frame.buffer_mut(),
        has_colour: model.has_colour,
    };
    if model.mode == Mode::Help {
        for line in HELP {
            canvas.line([(line.to_owned(), Style::new())]);
        }
        return;
    }
    let footer = canvas.take_last_line();
    header(model, &mut canvas, now);
    match (model.mode, model.content()) {
        (_, None) => canvas.parts(&[Part::new("Waiting for kubefan.")]),
        (_, Some(Content::Nothing(problem))) => canvas.parts(&[Part::new(problem)]),
        (Mode::Details(first), Some(Content::Table(_))) => details(model, &mut canvas, first),
        (_, Some(Content::Table(table))) => rows(model, &mut canvas, &table),
    }
    canvas.area = footer;
    canvas.line([(bottom(model), canvas.weak())]);
}

/// Draws the lines above the table.
fn header(model: &Model, canvas: &mut Canvas<'_>, now: Duration) {
    match &model.shown {
        Some(news) => {
            let mut first = state(&news.pages, &model.url);
            if model.is_paused {
                let age = text::age(now.saturating_sub(news.at).as_secs_f64());
                first.insert(
                    0,
                    Part::with_tone(format!("PAUSED for {age}"), Tone::Warning),
                );
            }
            canvas.parts(&first);
            canvas.parts(&counts(&news.pages, &news.rates));
        }
        None => canvas.parts(&[Part::new(text::harmless(&model.url))]),
    }
    if let Some(problem) = &model.problem
        && let Some(part) = trouble(problem, model.shown.as_deref(), now)
    {
        canvas.parts(&[part]);
    }
    let tabs = View::ALL.iter().enumerate().map(|(index, view)| {
        let total = model
            .shown
            .as_ref()
            .and_then(|news| view.total(&news.pages));
        let total = total.map_or_else(
            || text::UNKNOWN.to_owned(),
            |total| text::count(total as f64),
        );
        let name = format!("{} {} {total}", index + 1, view.name());
        match *view == model.view {
            true => (
                format!("[{name}] "),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            false => (format!(" {name}  "), Style::new()),
        }
    });
    canvas.line(tabs);
}

/// Returns what is said about a connection that is away, or `None` if that was only for a moment.
fn trouble(problem: &Problem, shown: Option<&News>, now: Duration) -> Option<Part> {
    let away = now.saturating_sub(problem.since);
    let text = match shown {
        None => format!("NO DATA: {}", problem.text),
        Some(_) if away < BRIEF => return None,
        Some(news) => {
            let age = text::age(now.saturating_sub(news.at).as_secs_f64());
            format!("NO CONNECTION, data of {age} ago: {}", problem.text)
        }
    };
    Some(Part::with_tone(text, Tone::Trouble))
}

/// Draws a table with the selected row in sight.
fn rows(model: &Model, canvas: &mut Canvas<'_>, table: &Table) {
    let room = usize::from(canvas.area.width).saturating_sub(MARKS[0].len());
    let widths = widths(table, room);
    let sorted_by = model.choice().sorted_by;
    let titles = table.columns.iter().zip(&widths).enumerate();
    let titles = titles.map(|(index, (column, width))| {
        let style = match index == sorted_by {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new().add_modifier(Modifier::BOLD),
        };
        (fitted(column.title, *width, column.is_number), style)
    });
    canvas.cells(MARKS[1], titles, Style::new());
    let height = usize::from(canvas.area.height);
    let selected = model.selected(table);
    let first = (selected + 1).saturating_sub(height);
    for (index, row) in table.rows.iter().enumerate().skip(first).take(height) {
        let (mark, style) = match index == selected {
            true => (MARKS[0], Style::new().add_modifier(Modifier::REVERSED)),
            false => (MARKS[1], Style::new()),
        };
        let cells = row.cells.iter().zip(table.columns).zip(&widths);
        let cells: Vec<_> = cells
            .map(|((cell, column), width)| {
                let text = fitted(shown(&cell.text), *width, column.is_number);
                (text, style.patch(canvas.style(cell.tone)))
            })
            .collect();
        canvas.cells(mark, cells, style);
    }
    if table.rows.is_empty() {
        let none = match model.filter.is_empty() {
            true => "none".to_owned(),
            false => format!("none with {:?}", model.filter),
        };
        canvas.parts(&[Part::new(none)]);
    }
}

/// Draws the details of the selected row from the line `first` on.
fn details(model: &Model, canvas: &mut Canvas<'_>, first: usize) {
    let Some(row) = model.selected_row() else {
        return canvas.parts(&[Part::new("It is gone. Esc goes back.")]);
    };
    let lines = detail_lines(&row.details, canvas.area.width.into());
    for line in lines.into_iter().skip(first) {
        canvas.line([(line, Style::new())]);
    }
}

/// Returns the last line of the screen.
fn bottom(model: &Model) -> String {
    let order = model.view.columns().get(model.choice().sorted_by);
    let order = order.map_or("", |column| column.title);
    let reversed = if model.choice().is_usual {
        ""
    } else {
        " reversed"
    };
    match model.mode {
        Mode::Filter => format!("filter: {}_  Enter keeps it, Esc clears it", model.filter),
        Mode::Details(_) => "up/down scroll  p pause  Esc back".to_owned(),
        Mode::Table if !model.filter.is_empty() => {
            format!(
                "filter: {} (Esc clears)  {KEYS}  by {order}{reversed}",
                model.filter
            )
        }
        Mode::Table | Mode::Help => format!("{KEYS}  by {order}{reversed}"),
    }
}

// === impl Canvas ===

impl Canvas<'_> {
    /// Returns the last line, which the canvas then does not have any more.
    fn take_last_line(&mut self) -> Rect {
        let height = self.area.height.saturating_sub(1);
        let last = Rect {
            y: self.area.y + height,
            height: self.area.height.min(1),
            ..self.area
        };
        self.area.height = height;
        last
    }

    /// Writes a line of texts with their styles.
    fn line(&mut self, texts: impl IntoIterator<Item = (String, Style)>) {
        if self.area.height == 0 {
            return;
        }
        let (mut x, y) = (self.area.x, self.area.y);
        for (text, style) in texts {
            let room = self.area.right().saturating_sub(x);
            (x, _) = self.buffer.set_stringn(x, y, text, room.into(), style);
        }
        self.area.y += 1;
        self.area.height -= 1;
    }

    /// Writes a line of parts.
    fn parts(&mut self, parts: &[Part]) {
        let texts: Vec<_> = parts
            .iter()
            .flat_map(|part| {
                let text = (part.text.clone(), self.style(part.tone));
                [text, (" ".repeat(GAP), Style::new())]
            })
            .collect();
        self.line(texts);
    }

    /// Writes a line of cells, with `style` between them.
    fn cells(
        &mut self,
        mark: &str,
        cells: impl IntoIterator<Item = (String, Style)>,
        style: Style,
    ) {
        let mut texts = vec![(mark.to_owned(), style)];
        for cell in cells {
            texts.push(cell);
            texts.push((" ".repeat(GAP), style));
        }
        // Nothing follows the last cell.
        texts.pop();
        self.line(texts);
    }

    /// Returns the style of a tone. Without colours, and for those that do not see them, it is bold.
    fn style(&self, tone: Tone) -> Style {
        let colour = match tone {
            Tone::Usual => return Style::new(),
            Tone::Warning => Color::Yellow,
            Tone::Trouble => Color::Red,
        };
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self.has_colour {
            true => style.fg(colour),
            false => style,
        }
    }

    /// Returns the style of texts that matter less.
    fn weak(&self) -> Style {
        match self.has_colour {
            true => Style::new().fg(Color::DarkGray),
            false => Style::new(),
        }
    }
}
