//! Origin: where the value of a setting is from.

use std::fmt;
use std::path::PathBuf;

use super::problem::{Location, Position, Problem};

/// The source of the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    File(PathBuf, Option<Position>),
    Environment(String),
    Flag(String),
}

impl Origin {
    /// Returns a problem with the value of the setting `key`, or with all of the file if the key is
    /// empty.
    pub(super) fn problem(&self, key: &str, message: &str) -> Problem {
        let (location, message) = match self {
            Self::File(path, position) => {
                let location = Location::File {
                    path: path.clone(),
                    position: *position,
                };
                let message = match key {
                    "" => message.to_owned(),
                    key => format!("{key}: {message}"),
                };
                (location, message)
            }
            Self::Environment(name) | Self::Flag(name) => {
                (Location::Named(name.clone()), message.to_owned())
            }
            Self::Default => (Location::Named(key.to_owned()), message.to_owned()),
        };
        Problem { location, message }
    }
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
