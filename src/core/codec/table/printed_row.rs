//! The row of an object as JSON text, without its ages and the object.

use std::ops::Range;
use std::sync::LazyLock;
use std::time::SystemTime;

use super::cells::age::{Age, INVALID, Moment, duration};
use super::cells::cell::Cell;
use super::cells::go_number::{put_json, put_separated, put_text};
use crate::api::escape_as_go;

/// [`INVALID`] as it is encoded in JSON.
static ENCODED_INVALID: LazyLock<String> = LazyLock::new(|| escape_as_go(INVALID));

/// The start of an object's row. It does not depend on the current time, so it can be stored until
/// the object changes.
#[derive(Debug, PartialEq)]
pub(super) struct PrintedRow {
    /// The row in JSON up to the value of `object`: the cells, and mostly no conditions.
    text: Box<str>,
    /// The times since which ages count, in ascending order of their places in `text`.
    times: Box<[(u32, Moment)]>,
    /// The place of the metadata in the object's body; `None` if the metadata of a row is not
    /// exactly this text.
    metadata: Option<(u32, u32)>,
}

impl PrintedRow {
    /// Returns the row with these cells. `conditions` is the row's member of this name,
    /// with a comma before it, or empty. `metadata` is the place in the object's body of
    /// what a row shows of it.
    pub(super) fn new(
        row: Vec<Cell>,
        conditions: &'static str,
        metadata: Option<Range<usize>>,
    ) -> Self {
        let mut text = String::with_capacity(192);
        let mut times = Vec::new();
        text.push_str("{\"cells\":[");
        put_separated(&mut text, row, |text, cell| match cell {
            Cell::Text(value) => put_text(text, &value),
            Cell::Value(value) => put_json(text, &value),
            Cell::Since {
                before,
                since,
                after,
            } => {
                put_text(text, &before);
                // The quote that ends the text follows the age.
                text.pop();
                // A row is never longer than its object, which has less than 4 GiB.
                times.push((text.len() as u32, since));
                let end = text.len();
                put_text(text, after);
                text.remove(end);
            }
        });
        text.push(']');
        text.push_str(conditions);
        text.push_str(",\"object\":");
        let place = |place: Range<usize>| {
            let end = u32::try_from(place.end).ok()?;
            Some((place.start as u32, end))
        };
        Self {
            text: text.into(),
            times: times.into(),
            metadata: metadata.and_then(place),
        }
    }

    /// Returns the place of the metadata in the object's body, if a row shows exactly this text.
    pub(super) fn metadata(&self) -> Option<Range<usize>> {
        self.metadata
            .map(|(start, end)| start as usize..end as usize)
    }

    /// Returns the length of the text with its ages at `now`.
    pub(super) fn length(&self, now: SystemTime) -> usize {
        let now = Moment::from(now);
        let ages = self
            .times
            .iter()
            .map(|(_, since)| encoded(&duration(*since, now)).len());
        self.text.len() + ages.sum::<usize>()
    }

    /// Appends the text with its ages at `now`.
    pub(super) fn put(&self, out: &mut Vec<u8>, now: SystemTime) {
        let now = Moment::from(now);
        let text = self.text.as_bytes();
        let mut from = 0;
        for (at, since) in &self.times {
            let at = *at as usize;
            out.extend_from_slice(&text[from..at]);
            out.extend_from_slice(encoded(&duration(*since, now)).as_bytes());
            from = at;
        }
        out.extend_from_slice(&text[from..]);
    }

    /// Returns the allocated bytes, including the row itself.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.text.len() + size_of_val(&*self.times)
    }
}

fn encoded(age: &Age) -> &str {
    match age.as_str() {
        INVALID => &ENCODED_INVALID,
        age => age,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

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
            ",\"conditions\":[]",
            Some(3..7),
        );
        assert_eq!(row.metadata(), Some(3..7));
        for (now, expected) in [
            (60, r#""a\u003cb","0s",null,"3 (0s ago)",7"#),
            (90, r#""a\u003cb","30s",null,"3 (30s ago)",7"#),
            (
                0,
                r#""a\u003cb","\u003cinvalid\u003e",null,"3 (\u003cinvalid\u003e ago)",7"#,
            ),
        ] {
            let (mut text, now) = (Vec::new(), UNIX_EPOCH + Duration::from_secs(now));
            row.put(&mut text, now);
            let expected = format!("{{\"cells\":[{expected}],\"conditions\":[],\"object\":");
            assert_eq!(text, expected.as_bytes());
            assert_eq!(text.len(), row.length(now));
        }
        assert!(row.size() > 40);
    }
}
