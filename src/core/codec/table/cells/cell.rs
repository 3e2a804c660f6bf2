//! The cell of a row: a value, or a text with the time that has passed since a moment.

use serde_json::Value;

use super::age::{Moment, UNKNOWN, duration};
use crate::codec::table::part::Part;

/// A cell of an object's row. It does not depend on the current time, so it can be stored.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::codec::table) enum Cell {
    Text(String),
    /// A value that is no text.
    Value(Value),
    /// A text that contains the time since a moment, such as `5m` or `3 (5m ago)`.
    Since {
        before: String,
        since: Moment,
        after: &'static str,
    },
}

impl Cell {
    /// Returns the age of an object that was created at `time`, or `<unknown>` if
    /// `time` is no valid time.
    pub(in crate::codec::table) fn age(time: Part<'_>) -> Self {
        let moment = Moment::of(time).filter(|moment| !moment.is_zero());
        moment.map_or_else(|| UNKNOWN.into(), Self::from)
    }

    /// Returns the value of the cell at `now`.
    pub(in crate::codec::table) fn at(self, now: Moment) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Value(value) => value,
            Self::Since {
                before,
                since,
                after,
            } => (before + duration(since, now).as_str() + after).into(),
        }
    }
}

impl From<Moment> for Cell {
    /// Returns the time since the moment.
    fn from(since: Moment) -> Self {
        Self::Since {
            before: String::new(),
            since,
            after: "",
        }
    }
}

impl<T: Into<Value>> From<T> for Cell {
    fn from(value: T) -> Self {
        match value.into() {
            Value::String(text) => Self::Text(text),
            other => Self::Value(other),
        }
    }
}
