//! Status: the body of every API error.

use serde::Deserialize;
use serde::Serialize;

use super::go_text::escape_html;

/// A failure as the API tells it (`kind: Status`); serializes with the API server's key order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    kind: String,
    api_version: String,
    /// List metadata; only an expired `continue` answer puts a token there.
    #[serde(default)]
    pub metadata: StatusMetadata,
    /// `Failure` for all that kubefan makes.
    #[serde(default)]
    pub status: String,
    /// What went wrong, for people.
    #[serde(default)]
    pub message: String,
    /// What went wrong, for programs, such as `Expired`; absent for unclassified errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Further facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
}

/// The `metadata` of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMetadata {
    /// A token with which the rest of an expired list can be had.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// The `details` of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// Name of the object concerned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group concerned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource or kind concerned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object concerned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds after which a retry makes sense; 0 when nothing is said.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause in [`StatusDetails`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// Cause for programs, such as `FieldValueForbidden`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Cause for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The parameter or field at fault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

impl Status {
    /// A failure with `code`, `reason` (empty: none) and `message`, without details.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: StatusMetadata::default(),
            status: "Failure".into(),
            message: message.into(),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            details: None,
            code,
        }
    }

    /// The same failure with `details`.
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Seconds to wait before a retry, when the Status says so.
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// True for 410 in both spellings of its reason.
    pub fn is_expired(&self) -> bool {
        self.code == 410 || matches!(self.reason.as_deref(), Some("Expired" | "Gone"))
    }

    /// The body as the API server prints it: one line of JSON and a line break.
    ///
    /// # Panics
    /// Never: plain structs of text and numbers always serialize.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("plain structs always serialize");
        let mut line = escape_html(&json);
        line.push('\n');
        line
    }

    /// Reads a JSON body; `None` when it is no `Status`.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        let status: Self = serde_json::from_slice(body).ok()?;
        (status.kind == "Status").then_some(status)
    }
}

#[cfg(test)]
mod tests;
