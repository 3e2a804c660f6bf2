//! Compares what kubefan prints with the API server's own Tables.

use std::time::SystemTime;

use serde_json::Value;

use super::cells::age::Moment;
use super::cells::cell::Cell;
use super::cells::go_number::json_text;
use super::column::ColumnDefinition;
use super::part::Document;
use super::printer::Printer;
use super::writer::conditions;
use crate::api::Object;

/// Returns `earliest`, and the moments up to `latest` when an age in `cells` changes. An age
/// changes at most once a second, when a full number of seconds has passed since its time.
fn moments(cells: &[Cell], earliest: Moment, latest: Moment) -> Vec<Moment> {
    let mut moments = vec![earliest];
    for cell in cells {
        if let Cell::Since { since, .. } = cell {
            let changes = since.seconds_from(earliest);
            moments.extend(changes.take_while(|change| *change <= latest));
        }
    }
    moments.sort_unstable();
    moments.dedup();
    moments
}

impl Printer {
    /// Returns true if the API server's Table has exactly this printer's columns.
    pub fn has_columns_of(&self, table: &Value) -> bool {
        let columns = table["columnDefinitions"].clone();
        let columns = serde_json::from_value::<Vec<ColumnDefinition>>(columns);
        columns.is_ok_and(|columns| columns == self.columns())
    }

    /// Returns the name of the first column that differs between this printer and `row`, a row of
    /// the API server's Table with the complete object. Returns `None` if the row is equal at one
    /// of the times from `earliest` to `latest`. The row's conditions count as a column
    /// `conditions`.
    pub fn differing_column(
        &self,
        row: &Value,
        earliest: SystemTime,
        latest: SystemTime,
    ) -> Option<String> {
        let object = &row["object"];
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let encoded = object.to_string();
        let document = Document::new(encoded.as_bytes());
        let conditions = conditions(text("apiVersion"), text("kind"), document.root());
        let of_server = match &row["conditions"] {
            Value::Null => String::new(),
            value => format!(",\"conditions\":{}", json_text(value)),
        };
        if conditions != of_server {
            return Some("conditions".to_owned());
        }
        let of_server = row["cells"].as_array().map(Vec::as_slice);
        let of_server = of_server.unwrap_or_default().iter();
        let of_server: Vec<_> = of_server.map(json_text).collect();
        let cells = self.unprinted(document.root());
        let mut differing = None;
        for now in moments(&cells, earliest.into(), latest.into()) {
            let own = cells.iter().cloned().map(|cell| json_text(&cell.at(now)));
            let own: Vec<_> = own.collect();
            if own == of_server {
                return None;
            }
            let mut columns = self.columns().iter().enumerate();
            let first = columns.find(|(at, _)| own.get(*at) != of_server.get(*at));
            differing = first.map(|(_, column)| column.name.clone());
        }
        differing.or_else(|| Some("cells".to_owned()))
    }

    /// Returns the cells of a cached object as texts, with an empty text for each cell that depends
    /// on the time. Returns `None` if the object can't be printed.
    pub fn constant_cells(&self, object: &Object) -> Option<Vec<String>> {
        let document = Document::new(&object.body);
        let cells = self.unprinted(document.root()).into_iter();
        let texts = cells.map(|cell| match cell {
            Cell::Text(text) => text,
            Cell::Value(value) => json_text(&value),
            Cell::Since { .. } => String::new(),
        });
        let texts = texts.collect();
        (!document.is_malformed()).then_some(texts)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Returns the API server's row of a pod that was created at second 100 and
    /// is read at second 107.
    fn row(cells: Value) -> Value {
        json!({
            "cells": cells,
            "object": {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": { "name": "a", "creationTimestamp": "1970-01-01T00:01:40Z" },
                "spec": { "containers": [{}] },
                "status": { "phase": "Pending" },
            },
        })
    }

    #[test]
    fn a_row_differs_unless_all_cells_are_equal_at_one_time() {
        let pods = Printer::built_in("v1", "Pod").expect("a printer");
        let none = "<none>";
        let right = json!(["a", "0/1", "Pending", "0", "7s", none, none, none, none]);
        let found = |row: &Value, from, to| pods.differing_column(row, at(from), at(to));
        assert_eq!(found(&row(right.clone()), 107, 107), None);
        assert_eq!(found(&row(right.clone()), 105, 108), None);
        let age = Some("Age".to_owned());
        assert_eq!(found(&row(right.clone()), 108, 110), age);
        assert_eq!(found(&row(right.clone()), 104, 106), age);
        for (position, column) in [(0, "Name"), (2, "Status"), (8, "Readiness Gates")] {
            let mut wrong = right.clone();
            wrong[position] = json!("other");
            assert_eq!(found(&row(wrong), 107, 107), Some(column.to_owned()));
        }
        let mut longer = right.clone();
        longer.as_array_mut().expect("cells").push(json!(1));
        assert_eq!(found(&row(longer), 107, 107), Some("cells".to_owned()));
        let mut ended = row(right);
        ended["conditions"] = json!([]);
        assert_eq!(found(&ended, 107, 107), Some("conditions".to_owned()));
    }

    /// Two ages whose times differ in less than a second change at different moments.
    #[test]
    fn ages_with_fractions_of_seconds_are_compared_at_each_of_their_changes() {
        let definition = json!({ "spec": { "versions": [{
            "name": "v1",
            "additionalPrinterColumns": [
                { "name": "A", "type": "date", "jsonPath": ".a" },
                { "name": "B", "type": "date", "jsonPath": ".b" },
            ],
        }] } });
        let printer = Printer::custom(&definition, "v1").expect("the version");
        let row = |a: &str, b: &str| {
            json!({
                "cells": ["x", a, b],
                "object": {
                    "metadata": { "name": "x" },
                    "a": "1970-01-01T00:01:40.3Z",
                    "b": "1970-01-01T00:01:40.8Z",
                },
            })
        };
        for (a, b, is_possible) in [
            ("5s", "5s", true),
            ("6s", "5s", true),
            ("6s", "6s", true),
            ("7s", "6s", true),
            ("5s", "6s", false),
            ("7s", "5s", false),
        ] {
            let found = printer.differing_column(&row(a, b), at(105), at(108));
            assert_eq!(found.is_none(), is_possible, "{a} {b}: {found:?}");
        }
    }

    #[test]
    fn columns_differ_if_anything_in_them_does() {
        let pods = Printer::built_in("v1", "Pod").expect("a printer");
        let mut table = json!({ "columnDefinitions": pods.columns() });
        assert!(pods.has_columns_of(&table));
        table["columnDefinitions"][3]["priority"] = json!(1);
        assert!(!pods.has_columns_of(&table));
        assert!(!pods.has_columns_of(&json!({})));
    }
}
