//! How a request was answered, for metrics and the log.

use crate::api::GroupVersionResource;

use super::decide::Reason;

/// The server attaches it to the response; the trace layer takes it off.
#[derive(Clone, Debug)]
pub struct RequestOutcome {
    /// The verb, or `other` for what no reader of metrics would look for.
    pub verb: &'static str,
    /// API group, for resources that discovery knows.
    pub group: String,
    /// Resource, if discovery knows it: clients can't make up label values.
    pub resource: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cache answered.
    Cache,
    /// The API server answered.
    Forwarded(Reason),
    /// kubefan refused it.
    Rejected,
}

impl RequestOutcome {
    /// Of a request with `verb` on `known`, if discovery knows the resource.
    pub(super) fn new(verb: &str, known: Option<GroupVersionResource>, outcome: Outcome) -> Self {
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
    /// The metric label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Forwarded(_) => "forwarded",
            Self::Rejected => "rejected",
        }
    }

    /// Why it was forwarded; empty otherwise.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forwarded(reason) => reason.name(),
            Self::Cache | Self::Rejected => "",
        }
    }
}

/// `verb` as a metric label.
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
