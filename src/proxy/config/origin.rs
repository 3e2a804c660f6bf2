//! Origin: where the value of a setting is from.

use std::fmt;
use std::path::PathBuf;

/// The source of the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf, Option<Position>),
    Environment(String),
    Flag(String),
}

/// A place in a file. Lines and columns count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::File(path, position) => {
                write!(f, "file {}", path.display())?;
                match position {
                    Some(position) => write!(f, ":{}", position.line),
                    None => Ok(()),
                }
            }
        }
    }
}
