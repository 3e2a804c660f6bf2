//! The problems in a configuration, with their positions in the file or the names of their flags.

use std::fmt;
use std::path::PathBuf;

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) location: Location,
    pub(super) message: String,
}

/// The location of a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    /// In a file. `position` is `None` if the problem has no position in the file.
    File {
        path: PathBuf,
        position: Option<Position>,
    },
    /// In the environment variable or flag of this name.
    Named(String),
}

/// A place in a file. Lines and columns count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// All mistakes in the configuration, at least one. They are displayed with one problem per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Problems ===

impl Problems {
    /// Sorts the problems: first those in a file by position, then the others in the given order.
    pub fn new(mut problems: Vec<Problem>) -> Self {
        let position = |problem: &Problem| match &problem.location {
            Location::File { position, .. } => (0, *position),
            Location::Named(_) => (1, None),
        };
        problems.sort_by_key(position);
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_in_file = |problem: &Problem| matches!(problem.location, Location::File { .. });
        if self.0.iter().any(is_in_file) {
            // Without this headline, the first problem would follow `error: ` on its line, and
            // editors would not find its position.
            let count = self.0.len();
            let plural = if count == 1 { "" } else { "s" };
            writeln!(f, "the configuration has {count} problem{plural}:")?;
        }
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Named(name) => write!(f, "{name}: ")?,
            Location::File { path, position } => {
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
