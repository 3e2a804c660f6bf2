//! What a LIST or WATCH asks for: decoded, defaulted, validated, and told as one typed value.
//!
//! [`ListOptions::parse`] reads the parameters; [`ListOptions::validate_list`] and
//! [`ListOptions::validate_watch`] hold them against each other, [`ListOptions::selection`] against
//! the kind.

use std::time::Duration;

use super::Consistency;
use super::ContinueToken;
use super::Malformed;
use super::Query;
use super::pretty_parameter;
use crate::api::LabelSelector;
use crate::api::RawFieldSelector;
use crate::api::ResourceVersion;
use crate::api::SelectableFields;
use crate::api::Selection;

/// The query parameters of LIST and WATCH, each well-formed, none checked against another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Conditions on labels.
    pub labels: LabelSelector,
    /// Conditions on fields, whose names the kind has yet to accept.
    pub fields: RawFieldSelector,
    /// True for WATCH.
    pub watch: bool,
    /// True when BOOKMARK events are welcome.
    pub allow_watch_bookmarks: bool,
    /// Whether a WATCH begins with the current state; `None` when not said.
    pub send_initial_events: Option<bool>,
    /// Not yet parsed; empty when unset.
    pub resource_version: String,
    /// `Exact`, `NotOlderThan` or a client's mistake; empty when unset.
    pub resource_version_match: String,
    /// Not yet decoded; empty when unset.
    pub continue_token: String,
    /// Greatest number of items in a page; 0 or less is no limit.
    pub limit: i64,
    /// Seconds until a WATCH ends; `None` or 0 leaves it to the server.
    pub timeout_seconds: Option<i64>,
    /// Whether JSON is to be indented; `None` when not said.
    pub pretty: Option<bool>,
}

/// What a LIST asks for; `limit` is at least 1 where given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRequest {
    /// The state at least as new as the request.
    MostRecent {
        /// Greatest number of items.
        limit: Option<usize>,
    },
    /// Any state, always whole: a limit does not count here.
    Any,
    /// A state at least as new as a resource version.
    NotOlderThan {
        /// The bound.
        resource_version: ResourceVersion,
        /// Greatest number of items.
        limit: Option<usize>,
    },
    /// The state at a resource version.
    Exact {
        /// The list's resource version.
        resource_version: ResourceVersion,
        /// Greatest number of items.
        limit: Option<usize>,
    },
    /// The next page of a list.
    Continue {
        /// Where it begins, and in which state.
        token: ContinueToken,
        /// Greatest number of items.
        limit: Option<usize>,
    },
}

/// What a WATCH asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Where the stream begins.
    pub start: WatchStart,
    /// True when BOOKMARK events are welcome.
    pub allow_bookmarks: bool,
    /// True when the initial events are closed by an annotated BOOKMARK.
    pub initial_events_end: bool,
    /// When the stream ends: `None` leaves it to the server, zero is at once.
    pub timeout: Option<Duration>,
}

/// Where a watch stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the current state as ADDED events, from a state this fresh.
    InitialEvents(Consistency),
    /// With the first change after a resource version, which may lie in the future.
    After(ResourceVersion),
    /// With the first change after the request; nothing older.
    FromMostRecent,
    /// With the first change after the cache's state.
    FromAny,
}

// === impl ListOptions ===

impl ListOptions {
    /// Decodes a query string; unknown parameters are ignored.
    ///
    /// # Errors
    ///
    /// The first parameter that is malformed.
    pub fn parse(query: &str) -> Result<Self, Malformed> {
        Self::from_query(&Query::parse(query))
    }

    /// Like [`ListOptions::parse`], of a query that is already split.
    ///
    /// # Errors
    ///
    /// The first parameter that is malformed.
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

    /// The objects concerned.
    ///
    /// # Errors
    ///
    /// When the kind can't be selected by one of the fields.
    pub fn selection(
        &self,
        namespace: Option<&str>,
        fields: &SelectableFields,
    ) -> Result<Selection, Malformed> {
        Ok(Selection {
            namespace: namespace.map(str::to_owned),
            labels: self.labels.clone(),
            fields: self.fields.resolve(fields)?,
        })
    }

    /// Checks, then tells what a LIST asks for.
    ///
    /// # Errors
    ///
    /// When parameters contradict each other, and for a malformed resource version or token.
    pub fn validate_list(&self) -> Result<ListRequest, Malformed> {
        self.check_list()?;
        let limit = usize::try_from(self.limit).ok().filter(|limit| *limit > 0);
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)?;
            return Ok(ListRequest::Continue { token, limit });
        }
        let resource_version = match Consistency::parse(&self.resource_version)? {
            Consistency::MostRecent => return Ok(ListRequest::MostRecent { limit }),
            Consistency::Any => return Ok(ListRequest::Any),
            Consistency::NotOlderThan(resource_version) => resource_version,
        };
        let is_exact = match self.resource_version_match.as_str() {
            "Exact" => true,
            "NotOlderThan" => false,
            // Without a match, a limit makes the list exact, as in times before there was a match.
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

    /// Checks, then tells what a WATCH asks for.
    ///
    /// # Errors
    ///
    /// When parameters contradict each other, and for a malformed resource version.
    pub fn validate_watch(&self) -> Result<WatchRequest, Malformed> {
        // A legacy watch (resource version unset or `0`, nothing else said) asks for initial events.
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
            // Another spelling of 0, which is no legacy watch.
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
        // Go counts nanoseconds in 64 bits, and so do its overflows.
        match self.timeout_seconds?.wrapping_mul(1_000_000_000) {
            0 => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds.try_into().unwrap_or(0))),
        }
    }

    fn check_list(&self) -> Result<(), Malformed> {
        let (version, continued) = (&self.resource_version, &self.continue_token);
        if self.send_initial_events.is_some() {
            return Err(Malformed::new("sendInitialEvents", "it is for watches"));
        }
        let problem = match self.resource_version_match.as_str() {
            "" if continued.is_empty() || matches!(version.as_str(), "" | "0") => return Ok(()),
            "" => {
                let problem = "it does not go with continue, whose token has one";
                return Err(Malformed::new("resourceVersion", problem));
            }
            _ if version.is_empty() => "it needs a resourceVersion",
            _ if !continued.is_empty() => "it does not go with continue",
            "Exact" if version == "0" => "Exact does not go with resourceVersion 0",
            "Exact" | "NotOlderThan" => return Ok(()),
            _ => "it is Exact or NotOlderThan",
        };
        Err(Malformed::new("resourceVersionMatch", problem))
    }

    fn check_watch(&self, is_legacy: bool) -> Result<(), Malformed> {
        let has_match = !self.resource_version_match.is_empty();
        let problem = match (
            self.send_initial_events,
            self.resource_version_match.as_str(),
        ) {
            (Some(_), "NotOlderThan") | (None, "") => {
                if self.continue_token.is_empty() || !(has_match || is_legacy) {
                    return Ok(());
                }
                "it does not go with continue"
            }
            (Some(_), _) => "sendInitialEvents needs NotOlderThan",
            (None, _) => "a watch needs sendInitialEvents with it",
        };
        Err(Malformed::new("resourceVersionMatch", problem))
    }
}

fn integer(query: &Query, parameter: &'static str) -> Result<Option<i64>, Malformed> {
    let Some(text) = query.first(parameter) else {
        return Ok(None);
    };
    let problem = |_| Malformed::new(parameter, format!("{text:?} is no whole number"));
    text.parse().map(Some).map_err(problem)
}

#[cfg(test)]
mod tests;
