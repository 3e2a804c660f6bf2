//! Advice: what a client does that costs much, the numbers that show it, and what to do.
//!
//! Pure: the advice depends on the usage alone. A client that keeps its objects in an informer, a
//! person with kubectl, and a controller get none.

mod client_rules;
mod operation_rules;
mod text;

use kubefan_core::api::GroupVersionResource;
use schemars::JsonSchema;
use serde::Serialize;

use super::table::ClientUsage;

/// One piece of advice about a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// What the client does.
    pub kind: AdviceKind,
    /// The numbers that show it, as a sentence without a full stop.
    pub evidence: String,
    /// What to do about it, as a sentence without a full stop.
    pub fix: String,
}

/// What a client does that costs much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AdviceKind {
    /// It lists the most recent state again and again.
    ListLoop,
    /// It gets the most recent state of objects again and again.
    GetLoop,
    /// It lists and watches again and again.
    RelistLoop,
    /// It opens watches that end at once.
    WatchReopened,
    /// It does not read its answers.
    SlowReader,
    /// It selects by conditions that no index finds.
    UnindexedSelector,
    /// It accepts only media types that no cache has.
    OtherFormat,
    /// It asks for what it may not read.
    DeniedReads,
    /// Its credentials are refused.
    WrongCredentials,
    /// It lists very much at once.
    HugeLists,
    /// Its answers are broken off because it reads too slowly.
    StalledBodies,
}

/// What the advice depends on besides the usage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The resources with caches whose reads of the most recent state have the policy `session`.
    pub session_resources: &'a [GroupVersionResource],
}

/// Returns the advice for a client. The order is that of the operations, and then of the kinds.
pub(super) fn advise(usage: &ClientUsage, context: Context<'_>) -> Vec<Advice> {
    let mut advice = Vec::new();
    for operation in &usage.operations {
        advice.extend(operation_rules::advise(usage, operation, context));
    }
    advice.extend(client_rules::advise(usage));
    advice
}

#[cfg(test)]
mod tests;
