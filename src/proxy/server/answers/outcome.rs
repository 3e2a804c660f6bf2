//! Records how a request was answered, for metrics and the log.

use kubefan_core::api::GroupVersionResource;

use crate::server::decide::Reason;

/// How a request was answered. The server attaches it to the response; the trace filter removes it.
#[derive(Clone, Debug)]
pub struct RequestOutcome {
    /// The request's verb; `other` if there is no metric label for the verb.
    pub verb: &'static str,
    /// API group; empty for the core group, and if discovery has no such resource.
    pub group: String,
    /// Resource; empty if discovery has no such resource, so that clients can't create label
    /// values.
    pub resource: String,
    /// Whether a cache or the API server answered, or kubefan refused.
    pub outcome: Outcome,
}

/// Marks the answer to a long-running request: a watch, or a connection to a pod. Its client may
/// read arbitrarily slowly.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct LongRunning;

/// Whether a cache or the API server answered a request, or kubefan refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A cache answered, possibly that the object does not exist.
    Cache,
    /// The request was forwarded to the API server for this reason, whether or not it answered.
    Forwarded(Reason),
    /// kubefan refused the request itself, or repeated an earlier 403 of the API server.
    Rejected,
}

impl RequestOutcome {
    /// Creates the outcome of a request with `verb`. `known` is its resource if discovery has it.
    pub(in crate::server) fn new(
        verb: &str,
        known: Option<GroupVersionResource>,
        outcome: Outcome,
    ) -> Self {
        let (group, resource) = known
            .map(|gvr| (gvr.group, gvr.resource))
            .unwrap_or_default();
        Self {
            verb: verb_label(verb),
            group,
            resource,
            outcome,
        }
    }
}

impl Default for RequestOutcome {
    fn default() -> Self {
        Self {
            verb: "other",
            group: String::new(),
            resource: String::new(),
            outcome: Outcome::Rejected,
        }
    }
}

impl Outcome {
    /// Returns the value of the metric label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Forwarded(_) => "forwarded",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the value of the metric label `reason`: why the request was forwarded. It is empty
    /// if the request was not forwarded.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forwarded(reason) => reason.name(),
            Self::Cache | Self::Rejected => "",
        }
    }
}

/// Returns the metric label for `verb`.
fn verb_label(verb: &str) -> &'static str {
    const KNOWN: [&str; 10] = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "post",
        "proxy",
    ];
    KNOWN
        .into_iter()
        .find(|known| *known == verb)
        .unwrap_or("other")
}
