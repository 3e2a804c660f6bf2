//! Shards: decides how requests with a `shardSelector` are refused instead of forwarded.
//!
//! If the feature gate ShardedListAndWatch of an API server is off, it ignores the parameter and
//! answers with all objects. So a kubefan that serves shards relays no such answer: a LIST or WATCH
//! of a shard is answered from a cache, or refused. It is forwarded only if the API server will
//! probably refuse it, and then only a refusal is relayed.

use http::StatusCode;
use kubefan_core::api::Status;

use crate::server::decide::Reason;

/// Returns the answer to a LIST or WATCH of a shard that would be forwarded for `reason`; `None` if
/// the API server will probably refuse the request in its own words.
pub(super) fn refusal(reason: Reason) -> Option<Status> {
    match reason {
        Reason::CallerIdentity
        | Reason::NotAuthorized
        | Reason::Malformed
        | Reason::UnknownField
        | Reason::MediaType
        | Reason::EmptySegment
        | Reason::Unknown => None,
        // No API server could continue this list, so the client must begin again.
        Reason::PastState => Some(Status::expired_list()),
        _ => Some(unserved(reason)),
    }
}

/// Returns the Status to send instead of the API server's answer with `code`. The request was of a
/// shard, and forwarded for `reason`. Returns `None` if the answer is a refusal.
pub(super) fn replacement_of(code: StatusCode, reason: Reason) -> Option<Status> {
    let is_refusal = code.is_client_error() || code.is_server_error();
    (!is_refusal).then(|| unserved(reason))
}

fn unserved(reason: Reason) -> Status {
    Status::unserved_shard(reason.name(), advice(reason))
}

/// Returns what a client must change so that a cache can answer it; `None` if an unchanged request
/// may be answered later.
fn advice(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::MediaType
        | Reason::Table
        | Reason::TableDiffers
        | Reason::PartialMetadata
        | Reason::NoSuchFormat => Some("ask for whole objects in JSON or protobuf"),
        Reason::CallerIdentity => Some(
            "kubefan does not know whose request it is; send it as a user whom kubefan can \
             authenticate, or, with --auth none, without credentials",
        ),
        Reason::DeprecatedPath => Some("use the path without watch/, and the parameter watch=1"),
        Reason::Upgrade => Some("send a plain GET, or a WebSocket handshake that is complete"),
        Reason::EmptySegment => Some("use a path without empty segments"),
        Reason::UnknownField => Some("kubefan does not know this field in a fieldSelector"),
        Reason::Malformed => Some("kubefan does not understand its parameters"),
        Reason::Unknown | Reason::WrongPath => Some("the path fits no resource"),
        Reason::NotWatchable | Reason::Aggregated | Reason::Secrets | Reason::Never => {
            Some("kubefan never caches this resource; ask for it without a shardSelector")
        }
        Reason::OutOfScope => Some(
            "kubefan caches only some objects of this resource; ask for those without a \
             shardSelector, or for fewer",
        ),
        Reason::Forbidden => {
            Some("kubefan itself may not list and watch this resource; ask its administrator")
        }
        Reason::NotGet
        | Reason::NonResource
        | Reason::Subresource
        | Reason::TableUnchecked
        | Reason::ShardSelector
        | Reason::NotCached
        | Reason::NotAuthorized
        | Reason::Consistent
        | Reason::Unproven
        | Reason::CacheDiffers
        | Reason::AheadOfCache
        | Reason::PastState
        | Reason::ShuttingDown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_to_wait_only_if_that_can_help() {
        for (reason, can_wait) in [
            (Reason::NotCached, true),
            (Reason::Unproven, true),
            (Reason::CacheDiffers, true),
            (Reason::AheadOfCache, true),
            (Reason::TableUnchecked, true),
            (Reason::NotAuthorized, true),
            (Reason::MediaType, false),
            (Reason::Table, false),
            (Reason::PartialMetadata, false),
            (Reason::DeprecatedPath, false),
            (Reason::CallerIdentity, false),
            (Reason::Unknown, false),
            (Reason::WrongPath, false),
            (Reason::NotWatchable, false),
            (Reason::Aggregated, false),
            (Reason::Secrets, false),
            (Reason::Never, false),
            (Reason::OutOfScope, false),
        ] {
            let status = unserved(reason);
            assert_eq!(status.code, 429, "{reason:?}");
            assert_eq!(status.retry_after().is_some(), can_wait, "{reason:?}");
            let says_later = status.message.ends_with("please try again later");
            assert_eq!(says_later, can_wait, "{}", status.message);
        }
    }

    #[test]
    fn only_refusals_of_the_api_server_are_relayed() {
        // Each row: the reason for forwarding, and the answer if the request is not forwarded.
        for (reason, expected) in [
            (Reason::CallerIdentity, None),
            (Reason::NotAuthorized, None),
            (Reason::Malformed, None),
            (Reason::UnknownField, None),
            (Reason::MediaType, None),
            (Reason::EmptySegment, None),
            (Reason::Unknown, None),
            (Reason::WrongPath, Some(429)),
            (Reason::Secrets, Some(429)),
            (Reason::PastState, Some(410)),
            (Reason::NotCached, Some(429)),
            (Reason::OutOfScope, Some(429)),
            (Reason::Unproven, Some(429)),
            (Reason::CacheDiffers, Some(429)),
            (Reason::Table, Some(429)),
            (Reason::TableUnchecked, Some(429)),
            (Reason::Upgrade, Some(429)),
            (Reason::DeprecatedPath, Some(429)),
            (Reason::PartialMetadata, Some(429)),
            (Reason::Forbidden, Some(429)),
            (Reason::AheadOfCache, Some(429)),
        ] {
            let found = refusal(reason).map(|status| status.code);
            assert_eq!(found, expected, "{reason:?}");
        }
        for (code, is_relayed) in [
            (200, false),
            (101, false),
            (301, false),
            (403, true),
            (500, true),
        ] {
            let answer = StatusCode::from_u16(code).expect("a status");
            let replacement = replacement_of(answer, Reason::NotAuthorized);
            assert_eq!(replacement.is_none(), is_relayed, "{code}");
            assert!(
                replacement.is_none_or(|status| status.code == 429),
                "{code}"
            );
        }
    }
}
