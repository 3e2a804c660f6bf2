//! The cells of an object as JSON text, in which only ages are missing.

use std::sync::LazyLock;
use std::time::SystemTime;

use super::age::INVALID;
use super::age::Moment;
use super::cell::Cell;
use super::go_number::put_json;
use super::go_number::put_text;
use crate::api::escape_as_go;

/// [`INVALID`] as it is encoded in JSON.
static ENCODED_INVALID: LazyLock<String> = LazyLock::new(|| escape_as_go(INVALID));

/// The cells of an object's row. They do not depend on the current time, so they can be kept as
/// long as the object does not change.
#[derive(Debug, PartialEq)]
pub(super) struct PrintedRow {
    /// The cells in JSON, separated by commas.
    cells: Box<str>,
    /// The times since which ages count, in ascending order of their places in `cells`.
    times: Box<[(u32, Moment)]>,
    /// The row's member `conditions` with a comma before it; mostly empty.
    pub(super) conditions: &'static str,
}

impl PrintedRow {
    pub(super) fn new(row: Vec<Cell>, conditions: &'static str) -> Self {
        let mut cells = String::with_capacity(128);
        let mut times = Vec::new();
        for cell in row {
            if !cells.is_empty() {
                cells.push(',');
            }
            match cell {
                Cell::Value(value) => put_json(&mut cells, &value),
                Cell::Since {
                    before,
                    since,
                    after,
                } => {
                    let mut text = String::new();
                    put_text(&mut text, &before);
                    text.pop();
                    cells.push_str(&text);
                    // A row is never longer than its object, which has less than 4 GiB.
                    times.push((cells.len() as u32, since));
                    text.clear();
                    put_text(&mut text, after);
                    cells.push_str(&text[1..]);
                }
            }
        }
        Self {
            cells: cells.into(),
            times: times.into(),
            conditions,
        }
    }

    /// Appends the cells with their ages at `now`.
    pub(super) fn put_cells(&self, out: &mut String, now: SystemTime) {
        let now = Moment::from(now);
        let mut from = 0;
        for (at, since) in &self.times {
            let at = *at as usize;
            out.push_str(&self.cells[from..at]);
            match since.ago(now) {
                age if age == INVALID => out.push_str(&ENCODED_INVALID),
                age => out.push_str(&age),
            }
            from = at;
        }
        out.push_str(&self.cells[from..]);
    }

    /// The allocated bytes, including the row itself.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.cells.len() + size_of_val(&*self.times)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::UNIX_EPOCH;

    use serde_json::Value;

    use super::*;

    #[test]
    fn ages_are_printed_with_the_row_and_not_before() {
        let since = Moment::parse("1970-01-01T00:01:00Z").expect("a time");
        let row = PrintedRow::new(
            vec![
                "a<b".into(),
                since.into(),
                Value::Null.into(),
                Cell::Since {
                    before: "3 (".to_owned(),
                    since,
                    after: " ago)",
                },
                7_i64.into(),
            ],
            "",
        );
        for (now, expected) in [
            (60, r#""a\u003cb","0s",null,"3 (0s ago)",7"#),
            (90, r#""a\u003cb","30s",null,"3 (30s ago)",7"#),
            (
                0,
                r#""a\u003cb","\u003cinvalid\u003e",null,"3 (\u003cinvalid\u003e ago)",7"#,
            ),
        ] {
            let mut cells = String::new();
            row.put_cells(&mut cells, UNIX_EPOCH + Duration::from_secs(now));
            assert_eq!(cells, expected);
        }
        assert!(row.size() > 40);
    }
}
