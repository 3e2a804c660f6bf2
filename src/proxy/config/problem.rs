//! The problems in a configuration, with their positions in the file or the names of their flags.

use std::fmt;

use super::origin::{Origin, Position};

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    origin: Origin,
    message: String,
}

/// All mistakes in the configuration, at least one. They are displayed with one problem per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Problems ===

impl Problems {
    /// Sorts the problems: first those in a file by position, then the others in the given order.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        let position = |problem: &Problem| match &problem.origin {
            Origin::File(_, position) => (0, *position),
            _ => (1, None),
        };
        problems.sort_by_key(position);
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_in_file = |problem: &Problem| matches!(problem.origin, Origin::File(..));
        if self.0.iter().any(is_in_file) {
            // Without this headline, the first problem would follow `error: ` on its line, and
            // editors would not find its position.
            let count = self.0.len();
            let plural = if count == 1 { "" } else { "s" };
            writeln!(f, "the configuration has {count} problem{plural}:")?;
        }
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

// === impl Problem ===

impl Problem {
    /// Creates a problem with the value of the setting `key` from `origin`, or with all of the file
    /// if the key is empty.
    pub(super) fn new(origin: Origin, key: &str, message: &str) -> Self {
        let message = match origin {
            Origin::File(..) | Origin::Default if !key.is_empty() => format!("{key}: {message}"),
            _ => message.to_owned(),
        };
        Self { origin, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => {}
            Origin::Environment(name) | Origin::Flag(name) => write!(f, "{name}: ")?,
            Origin::File(path, position) => {
                write!(f, "{}:", path.display())?;
                if let Some(Position { line, column }) = position {
                    write!(f, "{line}:{column}:")?;
                }
                f.write_str(" ")?;
            }
        }
        f.write_str(&self.message)
    }
}
