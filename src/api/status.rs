//! Status: the body of every API error.

use serde::Deserialize;
use serde::Serialize;

use super::ContinueToken;
use super::GroupVersionResource;
use super::Malformed;
use super::ResourceVersion;

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
        let mut line = escape_as_go(&json);
        line.push('\n');
        line
    }

    /// Reads a JSON body; `None` when it is no `Status`.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        let status: Self = serde_json::from_slice(body).ok()?;
        (status.kind == "Status").then_some(status)
    }
}

/// One constructor for each failure that clients are told of, in the API server's words.
impl Status {
    /// 400 with no details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 404 for an object.
    pub fn not_found(resource: &GroupVersionResource, name: &str) -> Self {
        let target = resource.group_resource();
        Self::failure(404, "NotFound", format!("{target} {name:?} not found"))
            .with_details(details(&resource.group, &resource.resource, name))
    }

    /// 404 for a path below a served group and version.
    pub fn path_not_found() -> Self {
        Self::failure(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(StatusDetails::default())
    }

    /// 405 for a method that a path does not take.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, "MethodNotAllowed", message).with_details(StatusDetails::default())
    }

    /// 405 for a verb, such as `watch`, that a resource does not offer.
    pub fn verb_not_supported(resource: &GroupVersionResource, verb: &str) -> Self {
        let target = resource.group_resource();
        let message = format!("{verb} is not supported on resources of kind {target:?}");
        Self::failure(405, "MethodNotAllowed", message).with_details(details(
            &resource.group,
            &resource.resource,
            "",
        ))
    }

    /// 410 for a LIST at a resource version that is gone.
    pub fn expired_list() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::failure(410, "Expired", message)
    }

    /// 410 for a page of a list whose resource version is gone; carries a token with which the
    /// rest can be had in its current state.
    pub fn expired_continue(token: &ContinueToken) -> Self {
        let mut status = Self::failure(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        status.metadata.continue_token = token.inconsistent().encode();
        status
    }

    /// 410, told in a watch stream, for a start that is older than the history kept; `oldest` is
    /// the least resource version that a watch could start from.
    pub fn expired_watch(requested: ResourceVersion, oldest: ResourceVersion) -> Self {
        let message = format!("too old resource version: {requested} ({oldest})");
        Self::failure(410, "Expired", message)
    }

    /// 429 while the cache of a resource has no complete state.
    pub fn storage_reinitializing(retry_after_seconds: u32) -> Self {
        Self::failure(429, "TooManyRequests", "storage is (re)initializing")
            .with_details(retry_after(retry_after_seconds))
    }

    /// 429 when the most recent state can't be proven and too many readers wait for the API server.
    pub fn too_many_consistent_reads() -> Self {
        let message = "the cache could not be proven up to date, and too many reads of the most \
                       recent state wait for the API server, please try again later";
        Self::failure(429, "TooManyRequests", message).with_details(retry_after(1))
    }

    /// 500 with reason `InternalError`, as a watch stream tells a fault.
    pub fn internal_error(message: impl Into<String>) -> Self {
        Self::failure(500, "InternalError", message)
    }

    /// 504 for a request that exceeded its deadline.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::failure(504, "Timeout", message).with_details(StatusDetails::default())
    }

    /// 504 for a resource version that `current` did not reach within the wait.
    pub fn too_large_resource_version(
        requested: ResourceVersion,
        current: ResourceVersion,
    ) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::failure(504, "Timeout", message).with_details(StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }],
            ..retry_after(1)
        })
    }
}

impl From<Malformed> for Status {
    fn from(malformed: Malformed) -> Self {
        Self::bad_request(malformed.to_string())
    }
}

fn details(group: &str, kind: &str, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..StatusDetails::default()
    }
}

fn retry_after(seconds: u32) -> StatusDetails {
    StatusDetails {
        retry_after_seconds: seconds,
        ..StatusDetails::default()
    }
}

/// Escapes in printed JSON what Go's `encoding/json` escapes besides: `<`, `>`, `&`, U+2028 and
/// U+2029, none of which stands outside strings.
pub(crate) fn escape_as_go(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
