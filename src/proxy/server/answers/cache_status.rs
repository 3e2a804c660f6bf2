//! The header `Cache-Status` (RFC 9211): how kubefan made an answer.
//!
//! kubefan appends its member after those of the caches behind it. It gives none to an answer of
//! its own, such as a refusal, whose Status says why.

use std::fmt::Write;

use http::header::CACHE_STATUS;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use super::outcome::{Call, Forwarded, Hit, Outcome};
use crate::server::decide::Reason;

/// A hit that needed no proof.
const HIT: HeaderValue = HeaderValue::from_static("kubefan; hit");
/// The API server's 403 for the same read of this user, some seconds ago.
const KEPT_REFUSAL: HeaderValue = HeaderValue::from_static("kubefan; hit; detail=kept_refusal");
/// A remembered document, because the API server can't be reached.
const OUTAGE: HeaderValue = HeaderValue::from_static("kubefan; hit; detail=outage");

/// Appends kubefan's member to `headers`, if the answer with this `outcome` has one.
pub(in crate::server) fn append(headers: &mut HeaderMap, outcome: Outcome) {
    if let Some(member) = member(outcome) {
        headers.append(CACHE_STATUS, member);
    }
}

/// Returns kubefan's member. `None` if neither a cache nor the API server has answered.
fn member(outcome: Outcome) -> Option<HeaderValue> {
    match outcome {
        Outcome::Cache(hit) => Some(hit_member(hit)),
        Outcome::KeptRefusal => Some(KEPT_REFUSAL),
        Outcome::Forwarded(Forwarded { reason, call }) => forwarded_member(reason, call),
        Outcome::Rejected(_) | Outcome::Unanswered => None,
    }
}

/// Returns the member of an answer from a cache. Its detail has `media_type` if the client got JSON
/// instead of what it prefers, then the proof's method, and then the proof's age, as far as they
/// apply.
fn hit_member(hit: Hit) -> HeaderValue {
    let reason = hit.is_json_instead.then(|| Reason::MediaType.name());
    let method = hit.proof.map(|proof| proof.method.name());
    let age = hit.proof.and_then(|proof| proof.age(Instant::now()));
    let age = age.map(|age| format!("{}ms", age.as_millis()));
    let words = [reason, method, age.as_deref()].into_iter().flatten();
    let words: Vec<_> = words.collect();
    if words.is_empty() {
        return HIT;
    }
    value(&format!("kubefan; hit; detail=\"{}\"", words.join(" ")))
}

fn forwarded_member(reason: Reason, call: Call) -> Option<HeaderValue> {
    let Some(status) = call.status else {
        return call.is_remembered.then_some(OUTAGE);
    };
    let token = if call.is_remembered {
        "stale"
    } else {
        fwd(reason)
    };
    let mut member = format!("kubefan; fwd={token}; fwd-status={}", status.as_str());
    if call.is_shared {
        member.push_str("; collapsed");
    }
    // Writing to a string never fails.
    let _ = write!(member, "; detail={}", reason.name());
    Some(value(&member))
}

/// Returns the value of the parameter `fwd` for a request that is forwarded for `reason`.
/// `docs/reasons.md` has it, too.
fn fwd(reason: Reason) -> &'static str {
    match reason {
        Reason::NotGet => "method",
        // kubefan is made, or configured, never to answer these from a cache.
        Reason::Upgrade
        | Reason::NonResource
        | Reason::EmptySegment
        | Reason::Subresource
        | Reason::DeprecatedPath
        | Reason::NotWatchable
        | Reason::Aggregated
        | Reason::Secrets
        | Reason::Never
        | Reason::ShardSelector => "bypass",
        // A cache may have the objects, but not in this form.
        Reason::Table
        | Reason::TableUnchecked
        | Reason::TableDiffers
        | Reason::PartialMetadata
        | Reason::MediaType
        | Reason::NoSuchFormat => "vary-miss",
        // A cache may have the objects, but the caller or the parameters do not allow their use.
        Reason::CallerIdentity
        | Reason::Malformed
        | Reason::UnknownField
        | Reason::NotAuthorized
        | Reason::Consistent => "request",
        // There can't be a cache.
        Reason::Unknown | Reason::WrongPath | Reason::Forbidden => "uri-miss",
        Reason::NotCached | Reason::PastState | Reason::ShuttingDown => "miss",
        Reason::OutOfScope => "partial",
        Reason::Unproven | Reason::CacheDiffers | Reason::AheadOfCache => "stale",
    }
}

/// Returns `member` as the value of a header.
fn value(member: &str) -> HeaderValue {
    HeaderValue::from_str(member).expect("names and numbers are ASCII")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use kubefan_core::informer::ProofMethod;

    use super::*;
    use crate::limit::Limit;
    use crate::server::answers::outcome::UsedProof;

    /// The value of `fwd` for each reason, in the order of `docs/reasons.md`.
    const REASONS: [(Reason, &str); 32] = [
        (Reason::CallerIdentity, "request"),
        (Reason::Upgrade, "bypass"),
        (Reason::NotGet, "method"),
        (Reason::NonResource, "bypass"),
        (Reason::EmptySegment, "bypass"),
        (Reason::Subresource, "bypass"),
        (Reason::DeprecatedPath, "bypass"),
        (Reason::Table, "vary-miss"),
        (Reason::TableUnchecked, "vary-miss"),
        (Reason::TableDiffers, "vary-miss"),
        (Reason::PartialMetadata, "vary-miss"),
        (Reason::MediaType, "vary-miss"),
        (Reason::Malformed, "request"),
        (Reason::Unknown, "uri-miss"),
        (Reason::WrongPath, "uri-miss"),
        (Reason::NotWatchable, "bypass"),
        (Reason::Aggregated, "bypass"),
        (Reason::Secrets, "bypass"),
        (Reason::Never, "bypass"),
        (Reason::UnknownField, "request"),
        (Reason::OutOfScope, "partial"),
        (Reason::ShardSelector, "bypass"),
        (Reason::NotCached, "miss"),
        (Reason::NotAuthorized, "request"),
        (Reason::Forbidden, "uri-miss"),
        (Reason::NoSuchFormat, "vary-miss"),
        (Reason::Consistent, "request"),
        (Reason::Unproven, "stale"),
        (Reason::CacheDiffers, "stale"),
        (Reason::AheadOfCache, "stale"),
        (Reason::PastState, "miss"),
        (Reason::ShuttingDown, "miss"),
    ];

    /// Panics unless `text` is a list of RFC 8941 with one token that has parameters. Their values
    /// are integers, tokens, strings, or absent.
    fn check_syntax(text: &str) {
        let is_token = |text: &str| {
            let is_tchar = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*')
                && text.chars().all(is_tchar)
        };
        let is_key = |text: &str| {
            let is_next =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
            text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
                && text.chars().all(is_next)
        };
        let is_string = |text: &str| {
            let inner = text
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'));
            let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
            inner.is_some_and(|inner| inner.chars().all(is_plain))
        };
        let is_integer =
            |text: &str| (1..=15).contains(&text.len()) && text.chars().all(|c| c.is_ascii_digit());
        // No value contains a semicolon.
        let mut parts = text.split(';');
        assert!(parts.next().is_some_and(is_token), "{text}");
        for parameter in parts {
            let parameter = parameter.trim_start_matches(' ');
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, "?1"));
            let is_value =
                value == "?1" || is_token(value) || is_string(value) || is_integer(value);
            assert!(is_key(key) && is_value, "{text}: {parameter}");
        }
    }

    fn forwarded(reason: Reason, call: Call) -> Outcome {
        Outcome::Forwarded(Forwarded { reason, call })
    }

    #[test]
    fn each_reason_has_its_token_and_the_page_has_both() {
        let page = include_str!("../../../../docs/reasons.md");
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(rows.len(), REASONS.len());
        for (row, (reason, token)) in rows.into_iter().zip(REASONS) {
            assert_eq!(fwd(reason), token, "{reason:?}");
            assert!(
                row.starts_with(&format!("| `{}` |", reason.name())),
                "{row}"
            );
            assert!(row.contains(&format!(" | `{token}` | ")), "{row}");
            let call = Call {
                status: Some(StatusCode::OK),
                ..Call::default()
            };
            let member = member(forwarded(reason, call)).expect("a member");
            let text = member.to_str().expect("ASCII");
            let name = reason.name();
            let expected = format!("kubefan; fwd={token}; fwd-status=200; detail={name}");
            assert_eq!(text, expected);
            check_syntax(text);
        }
    }

    #[test]
    fn a_member_says_what_was_called_and_shared_and_remembered() {
        let status = |status| StatusCode::from_u16(status).expect("a status");
        for (code, is_shared, is_remembered, expected) in [
            (
                Some(404),
                true,
                false,
                Some("kubefan; fwd=bypass; fwd-status=404; collapsed; detail=non_resource"),
            ),
            (
                Some(304),
                false,
                true,
                Some("kubefan; fwd=stale; fwd-status=304; detail=non_resource"),
            ),
            (
                Some(503),
                false,
                true,
                Some("kubefan; fwd=stale; fwd-status=503; detail=non_resource"),
            ),
            (None, false, true, Some("kubefan; hit; detail=outage")),
            // kubefan's own error.
            (None, false, false, None),
        ] {
            let call = Call {
                status: code.map(status),
                is_shared,
                is_remembered,
            };
            let member = member(forwarded(Reason::NonResource, call));
            let text = member
                .as_ref()
                .map(|member| member.to_str().expect("ASCII"));
            assert_eq!(text, expected);
            text.iter().for_each(|text| check_syntax(text));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hit_names_its_proof() {
        let as_of = Instant::now();
        tokio::time::advance(Duration::from_millis(12)).await;
        let proof = |method, as_of| Some(UsedProof { method, as_of });
        let barrier = proof(ProofMethod::Barrier, Some(as_of));
        let any = proof(ProofMethod::Any, None);
        for (is_json_instead, proof, expected) in [
            (false, None, "kubefan; hit"),
            (true, None, r#"kubefan; hit; detail="media_type""#),
            (false, any, r#"kubefan; hit; detail="any""#),
            (false, barrier, r#"kubefan; hit; detail="barrier 12ms""#),
            (
                true,
                barrier,
                r#"kubefan; hit; detail="media_type barrier 12ms""#,
            ),
        ] {
            let hit = Hit {
                is_json_instead,
                proof,
            };
            let member = member(Outcome::Cache(hit)).expect("a member");
            assert_eq!(member, expected);
            check_syntax(expected);
        }
    }

    #[test]
    fn a_member_follows_those_of_other_caches_and_a_refusal_has_none() {
        let first = HeaderValue::from_static("other; hit");
        for (outcome, expected) in [
            (
                Outcome::KeptRefusal,
                Some("kubefan; hit; detail=kept_refusal"),
            ),
            (Outcome::Rejected(Some(Limit::Streams)), None),
            (Outcome::Rejected(None), None),
        ] {
            let mut headers = HeaderMap::from_iter([(CACHE_STATUS, first.clone())]);
            append(&mut headers, outcome);
            let members: Vec<_> = headers.get_all(CACHE_STATUS).iter().collect();
            let expected = expected.map(HeaderValue::from_static);
            let expected: Vec<_> = [Some(&first), expected.as_ref()]
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(members, expected);
            expected
                .iter()
                .for_each(|value| check_syntax(value.to_str().expect("ASCII")));
        }
    }
}
