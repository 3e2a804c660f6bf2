//! The parameters of a GET of one object.

use super::{Malformed, Query};
use crate::api::ResourceVersion;

/// How fresh the state must be that answers a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// The state must be at least as new as the request (`resourceVersion` unset).
    MostRecent,
    /// Any state will do (`resourceVersion=0`).
    Any,
    /// The state must be at least as new as this resource version.
    NotOlderThan(ResourceVersion),
}

impl Consistency {
    /// Parses the value of a `resourceVersion` parameter.
    ///
    /// # Errors
    /// If the value is not a number.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        if text.is_empty() {
            return Ok(Self::MostRecent);
        }
        // Rust accepts a plus sign before the number; Go, and so the API server, does not.
        let number = text.parse().ok().filter(|_| !text.starts_with('+'));
        match number {
            None => {
                let problem = format!("{text:?} is not a resource version, which is a number");
                Err(Malformed::new("resourceVersion", problem))
            }
            Some(0) => Ok(Self::Any),
            Some(number) => Ok(Self::NotOlderThan(ResourceVersion(number))),
        }
    }
}

/// The validated parameters of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetOptions {
    /// How fresh the object must be.
    pub consistency: Consistency,
}

impl GetOptions {
    /// Parses the query string of a GET; parameters of LIST and WATCH are ignored.
    ///
    /// # Errors
    /// If `export` is true, which is no longer supported, or the resource version is not a number.
    pub fn parse(query: &str) -> Result<Self, Malformed> {
        Self::from_query(&Query::parse(query))
    }

    /// Does what [`GetOptions::parse`] does, for a query that was already split into parameters.
    ///
    /// # Errors
    /// As for [`GetOptions::parse`].
    pub fn from_query(query: &Query) -> Result<Self, Malformed> {
        if query.flag("export") == Some(true) {
            return Err(Malformed::new("export", "it is no longer supported"));
        }
        let consistency = Consistency::parse(&query.text("resourceVersion"))?;
        Ok(Self { consistency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_resource_version() {
        for (query, consistency) in [
            ("", Consistency::MostRecent),
            (
                "resourceVersion=&watch=1&limit=abc",
                Consistency::MostRecent,
            ),
            ("resourceVersion=0&export=false", Consistency::Any),
            (
                "resourceVersion=7",
                Consistency::NotOlderThan(ResourceVersion(7)),
            ),
        ] {
            assert_eq!(
                GetOptions::parse(query),
                Ok(GetOptions { consistency }),
                "{query}"
            );
        }
    }

    #[test]
    fn refuses_what_the_api_server_refuses() {
        for (query, message) in [
            (
                "resourceVersion=abc",
                r#"resourceVersion: "abc" is not a resource version, which is a number"#,
            ),
            (
                "resourceVersion=%2B1",
                r#"resourceVersion: "+1" is not a resource version, which is a number"#,
            ),
            (
                "resourceVersion=18446744073709551616",
                r#"resourceVersion: "18446744073709551616" is not a resource version, which is a number"#,
            ),
            ("export", "export: it is no longer supported"),
        ] {
            let malformed = GetOptions::parse(query).expect_err(query);
            assert_eq!(malformed.to_string(), message);
        }
    }
}
