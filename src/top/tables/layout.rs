//! The widths of columns, and a table as plain text.

use super::table::{Column, Table};
use crate::text;

/// The number of spaces between two columns.
pub(crate) const GAP: usize = 2;

/// Returns the widths of the columns of `table` on a screen with `room` columns, [`GAP`] between
/// them. If there is too little room, columns of text become narrower, the widest first, but not
/// below their least width; then the last columns are left out. At least one is left.
pub(crate) fn widths(table: &Table, room: usize) -> Vec<usize> {
    let needed = natural(table);
    let columns = table.columns.iter().zip(&needed);
    let least: Vec<_> = columns
        .map(|(column, needed)| column.least.min(*needed))
        .collect();
    let mut widths = needed.clone();
    while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > room {
        let narrower = (0..widths.len()).filter(|&index| widths[index] > least[index]);
        match narrower.max_by_key(|&index| widths[index]) {
            Some(widest) => widths[widest] -= 1,
            None if widths.len() > 1 => {
                // The others may use the room of the column that is left out.
                let left = widths.len() - 1;
                widths = needed[..left].to_vec();
            }
            None => widths = vec![room],
        }
    }
    widths
}

/// Returns the widths that the columns need.
fn natural(table: &Table) -> Vec<usize> {
    let columns = table.columns.iter().enumerate();
    let needed = columns.map(|(index, column)| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
        let cells = cells.map(|cell| text::width(shown(&cell.text)));
        cells
            .chain([text::width(column.title)])
            .max()
            .unwrap_or_default()
    });
    needed.collect()
}

/// Returns a table as kubectl prints one: columns that are aligned to the left, with three spaces
/// between them. Columns that need two snapshots are left out.
pub(crate) fn plain(table: &Table) -> String {
    let widths = natural(table);
    let titles = table.columns.iter().map(|column| column.title);
    let mut text = line(titles, table.columns, &widths);
    for row in &table.rows {
        let cells = row.cells.iter().map(|cell| shown(&cell.text));
        text.push_str(&line(cells, table.columns, &widths));
    }
    text
}

/// Returns a line of the cells whose columns are printed.
fn line<'a>(cells: impl Iterator<Item = &'a str>, columns: &[Column], widths: &[usize]) -> String {
    let mut line = String::new();
    for ((cell, column), width) in cells.zip(columns).zip(widths) {
        if !column.needs_two {
            line.push_str(cell);
            let padding = width.saturating_sub(text::width(cell)) + 3;
            line.extend(std::iter::repeat_n(' ', padding));
        }
    }
    format!("{}\n", line.trim_end())
}

/// Returns what is shown for the text of a cell: each cell has a word, as those of kubectl.
pub(crate) fn shown(text: &str) -> &str {
    match text {
        "" => "<none>",
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::table::{Cell, Row};

    const COLUMNS: [Column; 4] = [
        Column::text("NAME", 6),
        Column::number("SIZE"),
        Column::number("EVENTS/S").needing_two(),
        Column::text("AGENT", 5),
    ];

    fn table() -> Table {
        let row = |name: &str, size: u64, agent: &str| {
            let cells = vec![
                Cell::text(name),
                Cell::bytes(size),
                Cell::known(None, text::rate),
                Cell::text(agent),
            ];
            Row::new(name.to_owned(), cells, Vec::new())
        };
        Table {
            columns: &COLUMNS,
            rows: vec![
                row("configmaps", 1 << 20, "kubectl/v1.37"),
                row("pods", 12, ""),
                row("\u{738b}\x1b[2J", 0, "a"),
            ],
        }
    }

    #[test]
    fn columns_become_narrower_and_then_fewer() {
        for (room, expected) in [
            (100, &[10, 7, 8, 13][..]),
            (44, &[10, 7, 8, 13]),
            (43, &[10, 7, 8, 12]),
            (40, &[10, 7, 8, 9]),
            (38, &[9, 7, 8, 8]),
            (32, &[6, 7, 8, 5]),
            // The agent is left out.
            (31, &[10, 7, 8]),
            (26, &[7, 7, 8]),
            (24, &[10, 7]),
            (15, &[6, 7]),
            (14, &[10]),
            (7, &[7]),
            (3, &[3]),
            (0, &[0]),
        ] {
            assert_eq!(widths(&table(), room), expected, "{room}");
        }
    }

    #[test]
    fn a_table_is_printed_as_by_kubectl() {
        let expected = "\
NAME         SIZE      AGENT
configmaps   1.0 MiB   kubectl/v1.37
pods         12 B      <none>
\u{738b}\u{fffd}[2J       0 B       a
";
        assert_eq!(plain(&table()), expected);
    }
}
