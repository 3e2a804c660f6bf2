//! `Status`: the body of every error of the Kubernetes API.

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::go_escapes::escape_as_go;
use super::{ContinueToken, GroupVersionResource, Malformed, ResourceVersion};

/// An object of kind `Status`, which reports a failure; its JSON has the API server's key order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct Status {
    kind: String,
    api_version: String,
    /// List metadata: empty, except that a 410 for an expired `continue` token holds a new token.
    #[serde(default)]
    pub metadata: StatusMetadata,
    /// `Success` or `Failure`; always `Failure` in a `Status` made by kubefan.
    #[serde(default)]
    pub status: String,
    /// The problem in words for people.
    #[serde(default)]
    pub message: String,
    /// The problem as a word for programs, such as `Expired`; absent for unclassified errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The object that caused the failure, the individual causes, and the retry delay. Absent in
    /// some failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code of the answer, such as 404.
    #[serde(default)]
    pub code: u16,
}

/// The `metadata` of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMetadata {
    /// A `continue` token for the rest of an expired list in its current state; empty if unset.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// The `details` of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDetails {
    /// The name of the object; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of the object; empty for the core group or if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource or kind of the object, such as `pods`; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The UID of the object; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The individual causes of the failure, such as one for each invalid field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds that a client should wait before a retry; 0 if unset.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause in [`StatusDetails`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// The cause as a word for programs, such as `FieldValueForbidden`; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The cause in words for people; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The parameter or field that caused the failure; empty if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

impl Status {
    /// Creates a failure without details; an empty `reason` means none.
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

    /// Sets the `details`.
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Returns a random number of seconds from 1 to 5, after which a client that got a 429 should
    /// repeat its request. The number is random so that clients that were refused together do not
    /// return together.
    pub fn random_retry_seconds() -> u32 {
        rand::rng().random_range(1..=5)
    }

    /// Returns how many seconds a client should wait before a retry, or `None` if the
    /// `Status` has no delay.
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// Returns true if the code is 410, or the reason is `Expired` or `Gone`.
    pub fn is_expired(&self) -> bool {
        self.code == 410 || matches!(self.reason.as_deref(), Some("Expired" | "Gone"))
    }

    /// Returns the JSON body as the API server prints it: one line, which ends with a line break.
    ///
    /// # Panics
    /// Never: structs of text and numbers can always be serialized.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("plain structs always serialize");
        let mut line = escape_as_go(&json);
        line.push('\n');
        line
    }

    /// Parses a JSON body; `None` if it is not a `Status`.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        let status: Self = serde_json::from_slice(body).ok()?;
        (status.kind == "Status").then_some(status)
    }
}

/// One constructor for each failure that kubefan reports to clients, with the API server's wording.
impl Status {
    /// Returns a 400 for a malformed request, without details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// Returns a 414 for a URL of more than `most` bytes.
    pub fn url_too_long(most: usize) -> Self {
        let message = format!("the URL has more than {most} bytes; use shorter selectors");
        Self::failure(414, "", message)
    }

    /// Returns a 404 for the object `name`, which does not exist.
    pub fn not_found(resource: &GroupVersionResource, name: &str) -> Self {
        let target = resource.group_resource();
        Self::failure(404, "NotFound", format!("{target} {name:?} not found"))
            .with_details(details(resource, name))
    }

    /// Returns a 404 for an unknown path below a group and version that the API server serves.
    pub fn path_not_found() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(404, "NotFound", message).with_details(StatusDetails::default())
    }

    /// Returns a 405 for an HTTP method that the path does not accept.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, "MethodNotAllowed", message).with_details(StatusDetails::default())
    }

    /// Returns a 405 for a verb, such as `watch`, that a resource does not offer.
    pub fn verb_not_supported(resource: &GroupVersionResource, verb: &str) -> Self {
        let target = resource.group_resource();
        let message = format!("{verb} is not supported on resources of kind {target:?}");
        Self::failure(405, "MethodNotAllowed", message).with_details(details(resource, ""))
    }

    /// Returns a 410 for a LIST at a resource version that is older than the available
    /// history. The simulator sends it; kubefan sends it only for a LIST of a shard, and
    /// forwards other such LISTs.
    pub fn expired_list() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::failure(410, "Expired", message)
    }

    /// Returns a 410 for the next page of a list, if the list's resource version is too old. The
    /// `Status` contains a new `continue` token for the rest of the list in its current state. Only
    /// the simulator sends it; kubefan forwards such a LIST.
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

    /// Returns a 410, to be sent in a watch stream, for a watch that starts before the available
    /// history. `oldest` is the smallest resource version that a watch can start from.
    pub fn expired_watch(requested: ResourceVersion, oldest: ResourceVersion) -> Self {
        let message = format!("too old resource version: {requested} ({oldest})");
        Self::failure(410, "Expired", message)
    }

    /// Returns a 429 for a read of a cache without a complete list.
    pub fn storage_reinitializing(retry_after_seconds: u32) -> Self {
        Self::failure(429, "TooManyRequests", "storage is (re)initializing")
            .with_details(retry_after(retry_after_seconds))
    }

    /// Returns a 429. Its `Retry-After` is a random number of seconds from 1 to 5.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        let details = retry_after(Self::random_retry_seconds());
        Self::failure(429, "TooManyRequests", message).with_details(details)
    }

    /// Returns a 429 for a LIST or WATCH of a shard that no cache can answer, for `reason`. The
    /// request is not forwarded, because an API server may answer it with all objects.
    ///
    /// If kubefan can never answer the request, `advice` says what to change. Then the status has
    /// no `Retry-After`, so that client-go reports the error instead of repeating the request.
    pub fn unserved_shard(reason: &str, advice: Option<&str>) -> Self {
        let advised = advice.unwrap_or("please try again later");
        let message = format!(
            "kubefan answers a shardSelector only from a cache, and none can answer this request \
             ({reason}): {advised}"
        );
        match advice {
            Some(_) => Self::failure(429, "TooManyRequests", message),
            None => Self::too_many_requests(message),
        }
    }

    /// Returns a 500 for an invalid `shardSelector`, as the API server sends it.
    pub fn invalid_shard_selector(problem: &str) -> Self {
        Self::failure(500, "", format!("invalid shard selector: {problem}"))
    }

    /// Returns a 500 with reason `InternalError` and no details, as the API server sends it in
    /// watch streams.
    pub fn internal_error(message: impl Into<String>) -> Self {
        Self::failure(500, "InternalError", message)
    }

    /// Returns a 503 for a request that provably never reached the API server. It has a
    /// `Retry-After` of 1 s, so client-go repeats a request with any verb after this time.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message).with_details(retry_after(1))
    }

    /// Returns a 504 for a request that exceeded its deadline.
    pub fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::failure(504, "Timeout", message).with_details(StatusDetails::default())
    }

    /// Returns a 504 for a read at the version `requested`, which the cache (at `current`) did not
    /// reach in time.
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

fn details(resource: &GroupVersionResource, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..StatusDetails::default()
    }
}

fn retry_after(seconds: u32) -> StatusDetails {
    StatusDetails {
        retry_after_seconds: seconds,
        ..StatusDetails::default()
    }
}

#[cfg(test)]
mod tests;
