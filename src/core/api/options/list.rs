//! The parameters of a LIST or WATCH: decoded, validated, and converted to one typed value.
//!
//! [`ListOptions::parse`] decodes the parameters. [`ListOptions::validate_list`] and
//! [`ListOptions::validate_watch`] check that they can be combined, and [`ListOptions::selection`]
//! checks that the kind has the selected fields.

use std::time::Duration;

use super::{Consistency, ContinueToken, Malformed, Query, pretty_parameter};
use crate::api::{LabelSelector, RawFieldSelector, ResourceVersion, SelectableFields, Selection};

/// The query parameters of LIST and WATCH, decoded but not yet checked in combination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`; empty if unset.
    pub labels: LabelSelector,
    /// `fieldSelector`; empty if unset. Its field names were not yet looked up in the kind.
    pub fields: RawFieldSelector,
    /// True for a WATCH, false for a LIST.
    pub watch: bool,
    /// True if the client accepts BOOKMARK events.
    pub allow_watch_bookmarks: bool,
    /// Whether a WATCH begins with the current objects; `None` if unset.
    pub send_initial_events: Option<bool>,
    /// `resourceVersion`, not yet parsed; empty if unset.
    pub resource_version: String,
    /// `resourceVersionMatch`, not yet validated; empty if unset.
    pub resource_version_match: String,
    /// `continue`, not yet decoded; empty if unset.
    pub continue_token: String,
    /// The largest number of items in a page; 0 or less means no limit.
    pub limit: i64,
    /// Seconds until a WATCH ends; with `None` or 0 the server chooses.
    pub timeout_seconds: Option<i64>,
    /// Whether JSON is indented; `None` if unset.
    pub pretty: Option<bool>,
}

/// A validated LIST: the state that it requests, and the item limit, which is at least 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRequest {
    /// A LIST of a state that is at least as new as the request.
    MostRecent {
        /// The largest number of items in the answer; `None` for no limit.
        limit: Option<usize>,
    },
    /// A LIST of any state. The API server ignores the limit, unless it reads the resource from
    /// etcd.
    Any {
        /// The largest number of items in the answer; `None` for no limit.
        limit: Option<usize>,
    },
    /// A LIST of a state that is at least as new as a resource version.
    NotOlderThan {
        /// The oldest resource version that the answer may show.
        resource_version: ResourceVersion,
        /// The largest number of items in the answer; `None` for no limit.
        limit: Option<usize>,
    },
    /// A LIST of the state at exactly one resource version.
    Exact {
        /// The resource version that the answer must show.
        resource_version: ResourceVersion,
        /// The largest number of items in the answer; `None` for no limit.
        limit: Option<usize>,
    },
    /// The next page of a list.
    Continue {
        /// The first key of the page, and the resource version that the page shows.
        token: ContinueToken,
        /// The largest number of items in the page; `None` for no limit.
        limit: Option<usize>,
    },
}

/// A validated WATCH: its start, bookmarks and timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The state or resource version that the stream begins with.
    pub start: WatchStart,
    /// True if the client accepts BOOKMARK events.
    pub allow_bookmarks: bool,
    /// True if an annotated BOOKMARK follows the initial events.
    pub initial_events_end: bool,
    /// Time until the stream ends: with `None` the server chooses, with zero it ends at once.
    pub timeout: Option<Duration>,
}

/// The state or resource version that a watch stream begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// The stream begins with all objects as ADDED events, from a state with this freshness.
    InitialEvents(Consistency),
    /// The stream begins with the first change after a resource version, maybe a future one.
    After(ResourceVersion),
    /// The stream begins with the first change after the request, and contains none before it.
    FromMostRecent,
    /// The stream begins with the first change after the cache's current state.
    FromAny,
}

// === impl ListOptions ===

impl ListOptions {
    /// Decodes a query string; unknown parameters are ignored.
    ///
    /// # Errors
    /// If a parameter is malformed; the error names the first one.
    pub fn parse(query: &str) -> Result<Self, Malformed> {
        Self::from_query(&Query::parse(query))
    }

    /// Does what [`ListOptions::parse`] does, for a query that was already split into parameters.
    ///
    /// # Errors
    /// If a parameter is malformed; the error names the first one.
    pub fn from_query(query: &Query) -> Result<Self, Malformed> {
        Ok(Self {
            labels: LabelSelector::parse(query.first("labelSelector").unwrap_or_default())?,
            fields: RawFieldSelector::parse(query.first("fieldSelector").unwrap_or_default())?,
            watch: query.flag("watch").unwrap_or(false),
            allow_watch_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
            continue_token: query.text("continue"),
            limit: integer(query, "limit")?.unwrap_or(0),
            timeout_seconds: integer(query, "timeoutSeconds")?,
            pretty: pretty_parameter(query),
        })
    }

    /// Returns the objects that the request selects, of all shards. `fields` are the kind's
    /// selectable fields.
    ///
    /// # Errors
    /// If the field selector names a field that is not in `fields`.
    pub fn selection(
        &self,
        namespace: Option<&str>,
        fields: &SelectableFields,
    ) -> Result<Selection, Malformed> {
        Ok(Selection {
            namespace: namespace.map(str::to_owned),
            labels: self.labels.clone(),
            fields: self.fields.resolve(fields)?,
            ..Selection::default()
        })
    }

    /// Checks the parameters and converts them to a typed LIST.
    ///
    /// # Errors
    /// If parameters contradict each other, or the resource version or token is malformed.
    pub fn validate_list(&self) -> Result<ListRequest, Malformed> {
        self.check_list()?;
        let limit = usize::try_from(self.limit).ok().filter(|limit| *limit > 0);
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)?;
            return Ok(ListRequest::Continue { token, limit });
        }
        let resource_version = match Consistency::parse(&self.resource_version)? {
            Consistency::MostRecent => return Ok(ListRequest::MostRecent { limit }),
            Consistency::Any => return Ok(ListRequest::Any { limit }),
            Consistency::NotOlderThan(resource_version) => resource_version,
        };
        let is_exact = match self.resource_version_match.as_str() {
            "Exact" => true,
            "NotOlderThan" => false,
            // Without resourceVersionMatch a limit makes the list exact, as in old API versions.
            _ => limit.is_some(),
        };
        Ok(if is_exact {
            ListRequest::Exact {
                resource_version,
                limit,
            }
        } else {
            ListRequest::NotOlderThan {
                resource_version,
                limit,
            }
        })
    }

    /// Checks the parameters and converts them to a typed WATCH.
    ///
    /// # Errors
    /// If parameters contradict each other, or the resource version is malformed.
    pub fn validate_watch(&self) -> Result<WatchRequest, Malformed> {
        // A legacy watch gets initial events: its resource version is unset or `0`, and neither
        // sendInitialEvents nor resourceVersionMatch is set.
        let is_legacy = self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(self.resource_version.as_str(), "" | "0");
        self.check_watch(is_legacy)?;
        let wants_initial_events = self.send_initial_events.or(is_legacy.then_some(true));
        let consistency = Consistency::parse(&self.resource_version)?;
        let start = match (wants_initial_events, consistency) {
            (Some(true), consistency) => WatchStart::InitialEvents(consistency),
            (_, Consistency::NotOlderThan(resource_version)) => WatchStart::After(resource_version),
            (Some(false), Consistency::MostRecent) => WatchStart::FromMostRecent,
            (Some(false), Consistency::Any) => WatchStart::FromAny,
            // Another spelling of version 0, such as `00`, does not make a legacy watch.
            (None, _) => WatchStart::InitialEvents(Consistency::Any),
        };
        Ok(WatchRequest {
            start,
            allow_bookmarks: self.allow_watch_bookmarks,
            initial_events_end: wants_initial_events == Some(true) && self.allow_watch_bookmarks,
            timeout: self.timeout(),
        })
    }

    fn timeout(&self) -> Option<Duration> {
        // Go counts nanoseconds in 64 bits and overflows silently; kubefan must overflow equally.
        match self.timeout_seconds?.wrapping_mul(1_000_000_000) {
            0 => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds.try_into().unwrap_or(0))),
        }
    }

    fn check_list(&self) -> Result<(), Malformed> {
        let (version, continued) = (&self.resource_version, &self.continue_token);
        if self.send_initial_events.is_some() {
            let problem = "only watches accept it";
            return Err(Malformed::new("sendInitialEvents", problem));
        }
        let problem = match self.resource_version_match.as_str() {
            "" if continued.is_empty() || matches!(version.as_str(), "" | "0") => return Ok(()),
            "" => {
                let problem = "it can't be combined with continue, whose token has one";
                return Err(Malformed::new("resourceVersion", problem));
            }
            _ if version.is_empty() => "it requires a resourceVersion",
            _ if !continued.is_empty() => "it can't be combined with continue",
            "Exact" if version == "0" => "Exact can't be combined with resourceVersion 0",
            "Exact" | "NotOlderThan" => return Ok(()),
            _ => "it must be Exact or NotOlderThan",
        };
        Err(Malformed::new("resourceVersionMatch", problem))
    }

    fn check_watch(&self, is_legacy: bool) -> Result<(), Malformed> {
        let version_match = self.resource_version_match.as_str();
        let problem = match (self.send_initial_events, version_match) {
            (Some(_), "NotOlderThan") | (None, "") => {
                let is_checked = !version_match.is_empty() || is_legacy;
                if self.continue_token.is_empty() || !is_checked {
                    return Ok(());
                }
                "it can't be combined with continue"
            }
            (Some(_), _) => "sendInitialEvents requires NotOlderThan",
            (None, _) => "a watch requires sendInitialEvents with it",
        };
        Err(Malformed::new("resourceVersionMatch", problem))
    }
}

fn integer(query: &Query, parameter: &'static str) -> Result<Option<i64>, Malformed> {
    let Some(text) = query.first(parameter) else {
        return Ok(None);
    };
    let problem = |_| Malformed::new(parameter, format!("{text:?} is not a whole number"));
    text.parse().map(Some).map_err(problem)
}

#[cfg(test)]
mod tests;
