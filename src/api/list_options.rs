//! What a LIST or WATCH asks for: decoded, defaulted, validated, and told as one typed value.
//!
//! The steps come in the API server's order, so of several faults the same one is answered:
//! [`ListOptions::parse`], then [`ListOptions::validate_list`] or [`ListOptions::validate_watch`],
//! with [`ListOptions::selection`] in between where the request handler looks at the kind.

use std::time::Duration;

use super::Consistency;
use super::ContinueToken;
use super::FieldSelector;
use super::LabelSelector;
use super::Query;
use super::RawFieldSelector;
use super::ResourceVersion;
use super::SelectableFields;
use super::Selection;
use super::Status;
use super::StatusCause;
use super::go_text::parse_int64;
use super::go_text::quote_json;
use super::pretty::pretty_parameter;

/// The query parameters of LIST and WATCH, each well-formed, none checked against another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Conditions on labels.
    pub labels: LabelSelector,
    /// Conditions on fields, whose names the kind has yet to accept.
    pub fields: RawFieldSelector,
    /// True for WATCH; a deprecated `/watch/` path watches without it.
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
    /// The 400 that the API server answers for the first malformed parameter.
    pub fn parse(query: &str) -> Result<Self, Status> {
        Self::from_query(&Query::parse(query))
    }

    /// Like [`ListOptions::parse`], of a query that is already split.
    ///
    /// # Errors
    /// The 400 that the API server answers for the first malformed parameter.
    pub fn from_query(query: &Query) -> Result<Self, Status> {
        let integer = |name| query.first(name).map(parse_int64).transpose();
        // Numbers first, as the API server decodes in two steps.
        let timeout_seconds = integer("timeoutSeconds").map_err(Status::bad_request)?;
        let limit = integer("limit").map_err(Status::bad_request)?;
        let labels = LabelSelector::parse(query.first("labelSelector").unwrap_or_default());
        let fields = RawFieldSelector::parse(query.first("fieldSelector").unwrap_or_default());
        Ok(Self {
            labels: labels.map_err(Status::bad_request)?,
            fields: fields.map_err(Status::bad_request)?,
            watch: query.flag("watch").unwrap_or(false),
            allow_watch_bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            resource_version: query.text("resourceVersion"),
            resource_version_match: query.text("resourceVersionMatch"),
            continue_token: query.text("continue"),
            limit: limit.unwrap_or(0),
            timeout_seconds,
            pretty: pretty_parameter(query),
        })
    }

    /// Finds the objects concerned; `name` is that of a deprecated `/watch/…/NAME` path, of a
    /// single-object request, or `None`.
    ///
    /// # Errors
    /// The 400 for a field that the kind does not support, or a name that contradicts the path's.
    pub fn selection(
        &self,
        namespace: Option<&str>,
        name: Option<&str>,
        fields: &SelectableFields,
    ) -> Result<Selection, Status> {
        let mut fields = self.fields.resolve(fields).map_err(Status::bad_request)?;
        if let Some(name) = name {
            let is_named = self.fields.required_name() == Some(name);
            match self.fields.is_empty() {
                true => fields = FieldSelector::named(name),
                false if is_named => {}
                false => {
                    return Err(Status::bad_request(
                        "fieldSelector metadata.name doesn't match requested name",
                    ));
                }
            }
        }
        Ok(Selection {
            namespace: namespace.map(str::to_owned),
            labels: self.labels.clone(),
            fields,
        })
    }

    /// Checks the options against each other, as those of a LIST.
    ///
    /// # Errors
    /// 422 for combinations that are not allowed; see also [`ListOptions::validate_list`].
    pub fn check_list(&self) -> Result<(), Status> {
        refuse(self.list_causes())
    }

    /// Checks the options against each other, as those of a WATCH, legacy ones defaulted.
    ///
    /// # Errors
    /// 422 for combinations that are not allowed.
    pub fn check_watch(&self) -> Result<(), Status> {
        refuse(match self.watch {
            true => self.defaulted().watch_causes(),
            // A deprecated path forces the watch behind the validation's back.
            false => self.list_causes(),
        })
    }

    /// Checks, then tells what a LIST asks for.
    ///
    /// # Errors
    /// Those of [`ListOptions::check_list`], then 400 for a resource version or token that is
    /// malformed, or both together.
    pub fn validate_list(&self) -> Result<ListRequest, Status> {
        self.check_list()?;
        let limit = usize::try_from(self.limit).ok().filter(|limit| *limit > 0);
        if !self.continue_token.is_empty() {
            let token = ContinueToken::decode(&self.continue_token)?;
            return match self.resource_version.as_str() {
                "" | "0" => Ok(ListRequest::Continue { token, limit }),
                _ => Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                )),
            };
        }
        let consistency = Consistency::parse(&self.resource_version)
            .map_err(|fault| Status::bad_request(format!("invalid resource version: {fault}")))?;
        let resource_version = match consistency {
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
        Ok(match is_exact {
            true => ListRequest::Exact {
                resource_version,
                limit,
            },
            false => ListRequest::NotOlderThan {
                resource_version,
                limit,
            },
        })
    }

    /// Checks, then tells what a WATCH asks for.
    ///
    /// # Errors
    /// Those of [`ListOptions::check_watch`], then 500 for a malformed resource version.
    pub fn validate_watch(&self) -> Result<WatchRequest, Status> {
        self.check_watch()?;
        let consistency =
            Consistency::parse(&self.resource_version).map_err(Status::unclassified)?;
        let wants_initial_events = match self.watch {
            true => self.defaulted().send_initial_events,
            false => None,
        };
        let start = match (wants_initial_events, consistency) {
            (Some(true), consistency) => WatchStart::InitialEvents(consistency),
            (_, Consistency::NotOlderThan(resource_version)) => WatchStart::After(resource_version),
            (Some(false), Consistency::MostRecent) => WatchStart::FromMostRecent,
            (Some(false), Consistency::Any) => WatchStart::FromAny,
            // Without defaulting, both "" and "0" begin with whatever the cache has.
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

    /// Makes a legacy watch (resource version unset or `0`, nothing else said) one that asks for
    /// initial events.
    fn defaulted(&self) -> Self {
        let is_legacy = self.send_initial_events.is_none()
            && self.resource_version_match.is_empty()
            && matches!(self.resource_version.as_str(), "" | "0");
        match is_legacy {
            true => Self {
                send_initial_events: Some(true),
                resource_version_match: "NotOlderThan".to_owned(),
                ..self.clone()
            },
            false => self.clone(),
        }
    }

    fn list_causes(&self) -> Vec<StatusCause> {
        let given = self.resource_version_match.as_str();
        let mut causes = Vec::new();
        if !given.is_empty() {
            if self.resource_version.is_empty() {
                causes.push(forbidden_match(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                causes.push(forbidden_match(
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(given, "Exact" | "NotOlderThan") {
                causes.push(unsupported_match(given, r#""Exact", "NotOlderThan", """#));
            }
            if given == "Exact" && self.resource_version == "0" {
                causes.push(forbidden_match(
                    r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
                ));
            }
        }
        if self.send_initial_events.is_some() {
            causes.push(forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        causes
    }

    fn watch_causes(&self) -> Vec<StatusCause> {
        let given = self.resource_version_match.as_str();
        let mut causes = Vec::new();
        if self.send_initial_events.is_some() && given != "NotOlderThan" {
            causes.push(forbidden_match(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !given.is_empty() {
            if self.send_initial_events.is_none() {
                causes.push(forbidden_match(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                     provided",
                ));
            }
            if given != "NotOlderThan" {
                causes.push(unsupported_match(given, r#""NotOlderThan""#));
            }
            if !self.continue_token.is_empty() {
                causes.push(forbidden_match(
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
        }
        causes
    }
}

fn refuse(causes: Vec<StatusCause>) -> Result<(), Status> {
    match causes.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid_list_options(causes)),
    }
}

fn forbidden_match(detail: &str) -> StatusCause {
    forbidden("resourceVersionMatch", detail)
}

fn forbidden(field: &str, detail: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueForbidden".to_owned(),
        message: format!("Forbidden: {detail}"),
        field: field.to_owned(),
    }
}

fn unsupported_match(given: &str, supported: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueNotSupported".to_owned(),
        message: format!(
            "Unsupported value: {}: supported values: {supported}",
            quote_json(given)
        ),
        field: "resourceVersionMatch".to_owned(),
    }
}

#[cfg(test)]
mod tests;
