//! One constructor for each failure that clients can be told, in the API server's words.

use super::ContinueToken;
use super::GroupVersionResource;
use super::ResourceVersion;
use super::Status;
use super::StatusCause;
use super::StatusDetails;
use super::go_text::quote;

/// A request that was not allowed, as its refusal tells it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForbiddenRequest<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Verb, such as `list`.
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Resource, such as `pods`.
    pub resource: &'a str,
    /// Subresource, such as `log`; may be empty.
    pub subresource: &'a str,
    /// Namespace; empty for cluster scope.
    pub namespace: &'a str,
    /// Object's name; may be empty.
    pub name: &'a str,
    /// Why, in the authorizer's words; may be empty.
    pub reason: &'a str,
}

impl Status {
    /// 400 with no details.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403 for a request on a resource.
    pub fn forbidden(request: &ForbiddenRequest<'_>) -> Self {
        let resource = match request.subresource {
            "" => request.resource.to_owned(),
            subresource => format!("{}/{subresource}", request.resource),
        };
        let scope = match request.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        let sentence = format!(
            "User {} cannot {} resource {} in API group {} {scope}",
            quote(request.user),
            request.verb,
            quote(&resource),
            quote(request.group),
        );
        let target = qualified(request.group, request.resource);
        let name = match request.name {
            "" => String::new(),
            name => format!(" {}", quote(name)),
        };
        let why = with_reason(&sentence, request.reason);
        Self::failure(
            403,
            "Forbidden",
            format!("{target}{name} is forbidden: {why}"),
        )
        .with_details(details(request.group, request.resource, request.name))
    }

    /// 403 for a request on a path that is no resource.
    pub fn forbidden_path(user: &str, verb: &str, path: &str, reason: &str) -> Self {
        let sentence = format!("User {} cannot {verb} path {}", quote(user), quote(path));
        let why = with_reason(&sentence, reason);
        Self::failure(403, "Forbidden", format!("forbidden: {why}"))
            .with_details(StatusDetails::default())
    }

    /// 404 for an object.
    pub fn not_found(resource: &GroupVersionResource, name: &str) -> Self {
        let target = resource.group_resource();
        Self::failure(
            404,
            "NotFound",
            format!("{target} {} not found", quote(name)),
        )
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
        let target = quote(&resource.group_resource());
        let message = format!("{verb} is not supported on resources of kind {target}");
        Self::failure(405, "MethodNotAllowed", message).with_details(details(
            &resource.group,
            &resource.resource,
            "",
        ))
    }

    /// 406 for an `Accept` that names none of `media_types`.
    pub fn not_acceptable(media_types: &[&str]) -> Self {
        let accepted = media_types.join(", ");
        let message = format!("only the following media types are accepted: {accepted}");
        Self::failure(406, "NotAcceptable", message)
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

    /// 500 with no reason, as errors appear that the API server has no class for.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::failure(500, "", message)
    }

    /// 500 with reason `InternalError`, as a watch stream tells a fault.
    pub fn internal_error(message: impl Into<String>) -> Self {
        Self::failure(500, "InternalError", message)
    }

    /// 500 with reason `ServerTimeout`: `verb` on a resource may be tried again.
    pub fn server_timeout(resource: &GroupVersionResource, verb: &str) -> Self {
        let target = resource.group_resource();
        let message = format!(
            "The {verb} operation against {target} could not be completed at this time, please \
             try again."
        );
        Self::failure(500, "ServerTimeout", message).with_details(StatusDetails {
            retry_after_seconds: 2,
            ..details(&resource.group, &resource.resource, verb)
        })
    }

    /// 503 with the given seconds until a retry makes sense.
    pub fn service_unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
            .with_details(retry_after(retry_after_seconds))
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

    /// 422 for list options that contradict each other; `causes` are the faults in order.
    pub(super) fn invalid_list_options(causes: Vec<StatusCause>) -> Self {
        let faults: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let faults = match faults.as_slice() {
            [fault] => fault.clone(),
            _ => format!("[{}]", faults.join(", ")),
        };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {faults}");
        Self::failure(422, "Invalid", message).with_details(StatusDetails {
            causes,
            ..details("meta.k8s.io", "ListOptions", "")
        })
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

fn qualified(group: &str, resource: &str) -> String {
    match group {
        "" => resource.to_owned(),
        _ => format!("{resource}.{group}"),
    }
}

/// Makes the sentence harmless where it is shown as HTML, and appends why.
fn with_reason(sentence: &str, reason: &str) -> String {
    let harmless = sentence
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    match reason {
        "" => harmless,
        _ => format!("{harmless}: {reason}"),
    }
}
