//! Table: columns, and rows that can be sorted and filtered.

use std::cmp::Ordering;

use crate::text;

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Row>,
}

/// A column of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// The title, in upper case as those of kubectl.
    pub(crate) title: &'static str,
    /// Numbers are aligned to the right, and the largest comes first.
    pub(crate) is_number: bool,
    /// The column needs two snapshots, so it is not printed if there is only one.
    pub(crate) needs_two: bool,
    /// The number of columns of the terminal that it needs at least. It gets more if there is room.
    pub(crate) least: usize,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Identifies the row in later snapshots, and orders equal rows.
    pub(crate) key: String,
    pub(crate) cells: Vec<Cell>,
    /// Names and values of everything that is known. The values are harmless.
    pub(crate) details: Details,
}

/// Names and values.
pub(crate) type Details = Vec<(&'static str, String)>;

/// A cell. Its text is harmless.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
    /// What a column of numbers is sorted by; `None` if the number is not known.
    number: Option<f64>,
}

/// How a text is shown. Its words say the same, so that no colour is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Usual,
    Warning,
    Trouble,
}

// === impl Column ===

impl Column {
    /// Returns a column of text.
    pub(super) const fn text(title: &'static str, least: usize) -> Self {
        Self {
            title,
            is_number: false,
            needs_two: false,
            least,
        }
    }

    /// Returns a column of numbers, which are never cut.
    pub(super) const fn number(title: &'static str) -> Self {
        Self {
            title,
            is_number: true,
            needs_two: false,
            least: usize::MAX,
        }
    }

    pub(super) const fn needing_two(self) -> Self {
        Self {
            needs_two: true,
            ..self
        }
    }
}

// === impl Cell ===

impl Cell {
    /// Returns a cell with a text from anywhere.
    pub(super) fn text(text: &str) -> Self {
        Self {
            text: text::harmless(text),
            tone: Tone::Usual,
            number: None,
        }
    }

    /// Returns a cell with the number that `shown` formats.
    pub(super) fn number(number: f64, shown: impl FnOnce(f64) -> String) -> Self {
        Self {
            text: shown(number),
            tone: Tone::Usual,
            number: Some(number),
        }
    }

    /// Returns a cell with a number that may not be known.
    pub(super) fn known(number: Option<f64>, shown: impl FnOnce(f64) -> String) -> Self {
        match number {
            Some(number) => Self::number(number, shown),
            None => Self::text(text::UNKNOWN),
        }
    }

    /// Returns a cell with a count.
    pub(super) fn count(count: u64) -> Self {
        Self::number(count as f64, text::count)
    }

    /// Returns a cell with bytes.
    pub(super) fn bytes(bytes: u64) -> Self {
        Self::number(bytes as f64, text::bytes)
    }

    pub(super) fn with_tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

// === impl Row ===

impl Row {
    /// Returns a row with values from anywhere.
    pub(super) fn new(key: String, cells: Vec<Cell>, details: Details) -> Self {
        let details = details.into_iter();
        let harmless = details.map(|(name, value)| (name, text::harmless(&value)));
        Self {
            key,
            cells,
            details: harmless.collect(),
        }
    }

    /// Returns true if a cell has `part`, in upper or lower case.
    fn has(&self, part: &str) -> bool {
        let part = part.to_lowercase();
        let mut cells = self.cells.iter();
        cells.any(|cell| cell.text.to_lowercase().contains(&part))
    }

    /// Compares two rows by a column of numbers or text, the usual order first: the largest number,
    /// or the first text. Numbers that are not known come last.
    fn compared(&self, other: &Self, column: usize, is_number: bool) -> Ordering {
        let (Some(own), Some(others)) = (self.cells.get(column), other.cells.get(column)) else {
            return Ordering::Equal;
        };
        if is_number {
            let number = |cell: &Cell| cell.number.unwrap_or(f64::NEG_INFINITY);
            number(others).total_cmp(&number(own))
        } else {
            own.text.cmp(&others.text)
        }
    }
}

// === impl Table ===

impl Table {
    /// Sorts the rows by a column: in its usual order, or in the reverse order. Equal rows are sorted
    /// by their keys.
    pub(crate) fn sort(&mut self, column: usize, is_usual: bool) {
        let is_number = self
            .columns
            .get(column)
            .is_some_and(|column| column.is_number);
        self.rows.sort_by(|a, b| {
            let order = a.compared(b, column, is_number);
            let order = if is_usual { order } else { order.reverse() };
            order.then_with(|| a.key.cmp(&b.key))
        });
    }

    /// Keeps the rows that have `part` in a cell, in upper or lower case.
    pub(crate) fn filter(&mut self, part: &str) {
        if !part.is_empty() {
            self.rows.retain(|row| row.has(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [Column::text("NAME", 4), Column::number("SIZE")];

    fn table() -> Table {
        let row = |name: &str, size: Option<f64>| {
            let cells = vec![Cell::text(name), Cell::known(size, text::count)];
            Row::new(name.to_owned(), cells, Vec::new())
        };
        Table {
            columns: &COLUMNS,
            rows: vec![
                row("b", Some(9.0)),
                row("Pods", None),
                row("c", Some(10_000.0)),
                row("a", Some(9.0)),
            ],
        }
    }

    fn keys(table: &Table) -> Vec<&str> {
        table.rows.iter().map(|row| row.key.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_a_column_and_then_by_their_keys() {
        for (column, is_usual, expected) in [
            (0, true, ["Pods", "a", "b", "c"]),
            (0, false, ["c", "b", "a", "Pods"]),
            (1, true, ["c", "a", "b", "Pods"]),
            (1, false, ["Pods", "a", "b", "c"]),
            // No such column.
            (2, true, ["Pods", "a", "b", "c"]),
        ] {
            let mut table = table();
            table.sort(column, is_usual);
            assert_eq!(keys(&table), expected, "{column} {is_usual}");
        }
    }

    #[test]
    fn rows_are_filtered_by_any_cell() {
        for (part, expected) in [
            ("", &["b", "Pods", "c", "a"][..]),
            ("pod", &["Pods"]),
            ("10K", &["c"]),
            ("9", &["b", "a"]),
            ("none", &[]),
        ] {
            let mut table = table();
            table.filter(part);
            assert_eq!(keys(&table), expected, "{part}");
        }
    }
}
