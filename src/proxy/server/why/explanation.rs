//! The answer to a question about a request. Its fields are the contract of the admin API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::decide::ChangeKind;

/// Which way a request would take now, and what would change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The method of the request.
    pub method: String,
    /// The path and the query of the request.
    pub path: String,
    /// The name of the user that sends it; absent if kubefan has not determined the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The stages in the order in which the request would meet them.
    pub stages: Vec<ExplainedStage>,
    /// Who would answer.
    pub outcome: ExpectedOutcome,
    /// The reason why the request would be forwarded, as in `kubefan_requests_total`. With the outcome
    /// `hit`: `media_type`, if the client gets JSON instead of the type that it prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the reason means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// With the outcome `hit`: the reason why the request would be forwarded if the API server does
    /// not prove the cache in time. Absent if the answer needs no such proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
    /// The status code of an answer that kubefan itself gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The message of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What would make a cache answer, or answer without a call.
    pub changes: Vec<Change>,
}

/// Who would answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExpectedOutcome {
    /// A cache, or what kubefan remembers.
    Hit,
    /// The API server.
    Forward,
    /// kubefan, which refuses the request.
    Refuse,
}

/// What a stage would find out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedStage {
    /// The name of the stage.
    pub stage: String,
    /// What becomes of the request at the stage.
    pub outcome: StageOutcome,
    /// What the stage finds out, as text for people.
    pub detail: String,
}

/// What becomes of a request at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageOutcome {
    /// It goes on to the next stage.
    Pass,
    /// It is forwarded to the API server.
    Forward,
    /// kubefan refuses it.
    Refuse,
}

/// A change that would make a cache answer, or answer without a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What the change concerns.
    pub kind: ChangeKind,
    /// What to do, as text for people.
    pub text: String,
}
