//! What is wrong with a configuration, and where that stands.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) location: Location,
    pub(super) message: String,
}

/// Where a problem stands; in the order in which they are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    /// In a file; without a position the whole of it.
    File {
        path: PathBuf,
        position: Option<Position>,
    },
    /// A variable or a flag.
    Named(String),
}

/// Where something begins in a file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: u64,
    pub(super) column: u64,
}

/// Everything that is wrong with the configuration; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Problems ===

impl Problems {
    /// The problems of a file by position, then the others in their order.
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
            // So that each line begins with its place, where editors look for it.
            let count = self.0.len();
            let plural = if count == 1 { "" } else { "s" };
            writeln!(f, "the configuration has {count} fault{plural}:")?;
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
