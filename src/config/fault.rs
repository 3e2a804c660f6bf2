//! What is wrong with a configuration, and where that stands.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(super) place: Place,
    pub(super) problem: String,
}

/// Where a fault stands; in the order in which they are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
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

/// Everything that is wrong with the configuration; at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

// === impl Faults ===

impl Faults {
    /// The faults of a file by position, then the others in their order.
    pub fn new(mut faults: Vec<Fault>) -> Self {
        let position = |fault: &Fault| match &fault.place {
            Place::File { position, .. } => (0, *position),
            Place::Named(_) => (1, None),
        };
        faults.sort_by_key(position);
        Self(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_in_file = |fault: &Fault| matches!(fault.place, Place::File { .. });
        if self.0.iter().any(is_in_file) {
            // So that each line begins with its place, where editors look for it.
            let count = self.0.len();
            let plural = if count == 1 { "" } else { "s" };
            writeln!(f, "the configuration has {count} fault{plural}:")?;
        }
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Named(name) => write!(f, "{name}: ")?,
            Place::File { path, position } => {
                write!(f, "{}:", path.display())?;
                if let Some(Position { line, column }) = position {
                    write!(f, "{line}:{column}:")?;
                }
                f.write_str(" ")?;
            }
        }
        f.write_str(&self.problem)
    }
}
