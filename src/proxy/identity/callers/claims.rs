//! The headers of a request that claim an identity.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, Entry, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::identity::User;
use crate::identity::tokens::token::Token;

/// Prefix of the WebSocket subprotocol that contains the token of a client that can't set headers.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Prefix of the headers for impersonation, which name the user as whom a caller acts.
const IMPERSONATE: &str = "impersonate-";
/// Prefix of the headers of an authenticating proxy, which name the proxy's caller.
const REMOTE: &str = "x-remote-";
/// Prefix of the names of nodes.
const NODE: &str = "system:node:";

/// The characters of a key of `extra` that are not encoded in the name of a header.
const EXTRA_KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The claims of a request about its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::identity) enum Claims {
    /// The request contains credentials, or headers that a proxy adds for its callers.
    Credentials,
    /// The request contains no credentials, but names the user as whom its sender acts.
    Impersonation,
    None,
}

/// Returns the claims of a request with `headers` about its caller.
pub(in crate::identity) fn of(headers: &HeaderMap) -> Claims {
    let has_credentials = headers.contains_key(AUTHORIZATION)
        || names_with_prefix(headers, REMOTE).next().is_some()
        || has_token_protocol(headers);
    match has_credentials {
        true => Claims::Credentials,
        false if has_impersonation(headers) => Claims::Impersonation,
        false => Claims::None,
    }
}

/// Returns true if the request contains credentials or claims of an identity.
pub(crate) fn has_credentials(headers: &HeaderMap) -> bool {
    of(headers) != Claims::None
}

/// Returns true for a header that may contain a secret, or a claim that only an authenticating proxy
/// may send. A question about a request is asked and answered without the value.
pub fn is_secret_header(name: &str) -> bool {
    let secrets = [
        AUTHORIZATION,
        PROXY_AUTHORIZATION,
        COOKIE,
        SEC_WEBSOCKET_PROTOCOL,
    ];
    let start = name.get(..REMOTE.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(REMOTE) || secrets.iter().any(|secret| secret == name)
}

/// Adds to `headers` those of `others` that name a user as whom their sender acts, and no others.
pub(crate) fn add_impersonation(headers: &mut HeaderMap, others: &HeaderMap) {
    for name in names_with_prefix(others, IMPERSONATE) {
        for value in others.get_all(name) {
            headers.append(name, value.clone());
        }
    }
}

/// Returns true if the request names a user as whom its sender acts.
pub(in crate::identity) fn has_impersonation(headers: &HeaderMap) -> bool {
    names_with_prefix(headers, IMPERSONATE).next().is_some()
}

/// Returns true if a WebSocket subprotocol of the request is a token.
pub(in crate::identity) fn has_token_protocol(headers: &HeaderMap) -> bool {
    protocols(headers).any(is_token_protocol)
}

/// Returns the token in a WebSocket subprotocol; `None` if there is none, or more than one.
pub(in crate::identity) fn token_of_protocol(headers: &HeaderMap) -> Option<Token> {
    let prefix = TOKEN_PROTOCOL.as_bytes();
    let mut encoded = protocols(headers).filter_map(|protocol| protocol.strip_prefix(prefix));
    let (first, second) = (encoded.next()?, encoded.next());
    let decoded = URL_SAFE_NO_PAD.decode(first).ok()?;
    let token = Token::from_text(str::from_utf8(&decoded).ok()?);
    token.filter(|_| second.is_none())
}

/// Marks the headers with secrets, so that they are not printed, and so that HTTP/2 connections do
/// not add them to their tables (HPACK). An attacker's request could otherwise compare a guess with
/// a table's entries.
pub(in crate::identity) fn mark_sensitive(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, COOKIE] {
        if let Entry::Occupied(mut entry) = headers.entry(name) {
            entry.iter_mut().for_each(|value| value.set_sensitive(true));
        }
    }
}

/// Removes the headers that only an authenticating proxy may send. This must happen before a
/// request is forwarded with kubefan's credentials, because the API server may accept these
/// credentials for an authenticating proxy.
pub(in crate::identity) fn remove_remote(headers: &mut HeaderMap) {
    remove_with_prefix(headers, REMOTE);
}

/// The error of [`impersonate`]: headers can't name exactly this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user's name, groups or attributes do not fit in headers")]
pub(crate) struct DoesNotFit;

/// Replaces all headers that claim an identity by headers that impersonate `user`.
///
/// # Errors
/// If the name is empty, or a part of the user has control characters or begins or ends with a
/// space. HTTP servers remove such spaces, so `" system:masters"` would become another group.
pub(crate) fn impersonate(headers: &mut HeaderMap, user: &User) -> Result<(), DoesNotFit> {
    headers.remove(AUTHORIZATION);
    remove_with_prefix(headers, IMPERSONATE);
    remove_remote(headers);
    remove_token_protocols(headers);
    let mut append = |name: &str, value: &str| {
        let name = HeaderName::try_from(name).expect("the key is encoded");
        if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
            return Err(DoesNotFit);
        }
        // Go's server reads the bytes as UTF-8.
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.append(name, value.map_err(|_| DoesNotFit)?);
        Ok(())
    };
    if user.name.is_empty() {
        return Err(DoesNotFit);
    }
    append("impersonate-user", &user.name)?;
    let groups = user.groups.iter();
    let groups = groups.filter(|group| *group != User::AUTHENTICATED);
    if user.name.starts_with(NODE) && groups.clone().eq([User::NODES]) {
        // With constrained impersonation (Kubernetes 1.36 and later), the API server adds the group
        // of nodes, and permits no other header beside a node's name. With the older verb
        // `impersonate`, it does not add the group, so the node has no rights.
        return Ok(());
    }
    if !user.uid.is_empty() {
        append("impersonate-uid", &user.uid)?;
    }
    if user.name.starts_with(User::SERVICE_ACCOUNT) && groups.clone().next().is_none() {
        // Without any group, the API server would add the groups of all service accounts. This user
        // does not have them: an authenticating proxy has named only the account.
        append("impersonate-group", User::AUTHENTICATED)?;
    }
    for group in groups {
        append("impersonate-group", group)?;
    }
    for (key, values) in &user.extra {
        let key = utf8_percent_encode(key, EXTRA_KEY);
        for value in values {
            append(&format!("impersonate-extra-{key}"), value)?;
        }
    }
    Ok(())
}

fn names_with_prefix<'a>(
    headers: &'a HeaderMap,
    prefix: &'static str,
) -> impl Iterator<Item = &'a HeaderName> {
    let names = headers.keys();
    names.filter(move |name| name.as_str().starts_with(prefix))
}

fn remove_with_prefix(headers: &mut HeaderMap, prefix: &'static str) {
    let names: Vec<_> = names_with_prefix(headers, prefix).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Returns the WebSocket subprotocols of the request.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    protocols.map(<[u8]>::trim_ascii)
}

fn is_token_protocol(protocol: &[u8]) -> bool {
    protocol.starts_with(TOKEN_PROTOCOL.as_bytes())
}

/// Removes the tokens from the list of WebSocket subprotocols.
fn remove_token_protocols(headers: &mut HeaderMap) {
    if !has_token_protocol(headers) {
        return;
    }
    let kept = protocols(headers).filter(|protocol| !is_token_protocol(protocol));
    let kept = kept.collect::<Vec<_>>().join(&b", "[..]);
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if !kept.is_empty() {
        let kept = HeaderValue::from_bytes(&kept);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept.expect("parts of a header"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impersonated_request_claims_nothing_else() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("impersonate-user", "admin"),
            ("impersonate-group", "system:masters"),
            ("x-remote-user", "admin"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io",
            ),
            ("accept", "application/json"),
        ] {
            headers.append(name, value.parse().expect("a header value"));
        }
        let user = User {
            name: "jane".to_owned(),
            uid: "7".to_owned(),
            groups: ["dev", "ops", User::AUTHENTICATED]
                .map(str::to_owned)
                .to_vec(),
            extra: [(
                "example.com/a b".to_owned(),
                vec!["1".to_owned(), "2".to_owned()],
            )]
            .into(),
        };
        impersonate(&mut headers, &user).expect("a user that fits in headers");
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "accept: application/json",
                "impersonate-extra-example.com%2fa%20b: 1",
                "impersonate-extra-example.com%2fa%20b: 2",
                "impersonate-group: dev",
                "impersonate-group: ops",
                "impersonate-uid: 7",
                "impersonate-user: jane",
                "sec-websocket-protocol: v5.channel.k8s.io",
            ]
        );
        let node = |groups: &[&str]| User {
            name: "system:node:n1".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..user.clone()
        };
        for (groups, is_alone) in [
            (&[User::NODES, User::AUTHENTICATED][..], true),
            (&[User::AUTHENTICATED], false),
            (&[User::NODES, "other"], false),
        ] {
            impersonate(&mut headers, &node(groups)).expect("a user that fits in headers");
            assert_eq!(headers["impersonate-user"], "system:node:n1");
            let has_uid = headers.contains_key("impersonate-uid");
            assert_eq!(has_uid, !is_alone, "{groups:?}");
        }
    }

    #[test]
    fn a_service_account_gets_no_groups_from_the_api_server() {
        let groups_of = |groups: &[&str]| {
            let user = User {
                name: "system:serviceaccount:n:builder".to_owned(),
                groups: groups.iter().map(|&group| group.to_owned()).collect(),
                ..User::default()
            };
            let mut headers = HeaderMap::new();
            impersonate(&mut headers, &user).expect("a user that fits in headers");
            let groups = headers.get_all("impersonate-group").iter();
            let groups = groups.map(|group| group.to_str().expect("text").to_owned());
            groups.collect::<Vec<_>>()
        };
        assert_eq!(groups_of(&[]), [User::AUTHENTICATED]);
        assert_eq!(groups_of(&[User::AUTHENTICATED]), [User::AUTHENTICATED]);
        assert_eq!(groups_of(&["dev", User::AUTHENTICATED]), ["dev"]);
    }

    #[test]
    fn a_user_that_headers_would_change_is_not_impersonated() {
        let user = |name: &str, group: &str| User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        };
        for (name, group, expected) in [
            ("jane", "dev", Ok(())),
            ("jane doe", "d\u{e9}v", Ok(())),
            ("", "dev", Err(DoesNotFit)),
            (" ", "dev", Err(DoesNotFit)),
            (" admin", "dev", Err(DoesNotFit)),
            ("jane", " system:masters", Err(DoesNotFit)),
            ("jane", "system:masters\t", Err(DoesNotFit)),
            ("jane", "a\nb", Err(DoesNotFit)),
        ] {
            let impersonated = impersonate(&mut HeaderMap::new(), &user(name, group));
            assert_eq!(impersonated, expected, "{name:?} {group:?}");
        }
    }

    #[test]
    fn headers_with_secrets_are_marked() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("authorization", "Bearer y"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.eA",
            ),
            ("cookie", "token=x"),
            ("accept", "application/json"),
        ] {
            headers.append(name, value.parse().expect("a header value"));
        }
        mark_sensitive(&mut headers);
        for (name, value) in &headers {
            assert_eq!(value.is_sensitive(), *name != "accept", "{name}");
        }
    }

    #[test]
    fn a_subprotocol_may_be_a_token() {
        let of = |protocols: &str| {
            let mut headers = HeaderMap::new();
            let value = protocols.parse().expect("a header value");
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
            token_of_protocol(&headers).map(|token| token.secret().to_owned())
        };
        let token = |text: &str| format!("{TOKEN_PROTOCOL}{}", URL_SAFE_NO_PAD.encode(text));
        let good = format!("v5.channel.k8s.io, {}", token("a-token"));
        for (protocols, expected) in [
            (good, Some("a-token")),
            ("v5.channel.k8s.io".to_owned(), None),
            (format!("{}, {}", token("a"), token("b")), None),
            (format!("{TOKEN_PROTOCOL}+"), None),
            (token(""), None),
            (token("two words"), None),
            (token("a\nb"), None),
        ] {
            assert_eq!(of(&protocols).as_deref(), expected, "{protocols}");
        }
    }

    #[test]
    fn secrets_are_recognised_and_only_impersonation_is_added() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer own"));
        let mut others = HeaderMap::new();
        for (name, is_secret) in [
            ("Authorization", true),
            ("proxy-authorization", true),
            ("COOKIE", true),
            ("Sec-WebSocket-Protocol", true),
            ("X-Remote-User", true),
            ("x-remote-extra-a", true),
            ("x-user", false),
            ("x-remote", false),
            ("Impersonate-User", false),
            ("impersonate-group", false),
            ("accept", false),
        ] {
            assert_eq!(is_secret_header(name), is_secret, "{name}");
            let name = HeaderName::try_from(name).expect("the name of a header");
            others.append(name, HeaderValue::from_static("a"));
        }
        others.append("impersonate-group", HeaderValue::from_static("b"));
        add_impersonation(&mut headers, &others);
        assert_eq!(headers.len(), 4, "{headers:?}");
        assert_eq!(headers[AUTHORIZATION], "Bearer own");
        assert_eq!(headers["impersonate-user"], "a");
        assert_eq!(headers.get_all("impersonate-group").iter().count(), 2);
    }

    #[test]
    fn callers_with_an_identity_are_recognised() {
        let rows = [
            ("authorization", "Bearer x", true),
            ("impersonate-user", "jane", true),
            ("impersonate-extra-scopes", "x", true),
            ("x-remote-user", "jane", true),
            ("x-remote-extra-a", "x", true),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.eA",
                true,
            ),
            ("sec-websocket-protocol", "v5.channel.k8s.io", false),
            ("accept", "application/json", false),
        ];
        for (name, value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header value"));
            assert_eq!(has_credentials(&headers), expected, "{name}: {value}");
            let only_impersonates = name.starts_with(IMPERSONATE);
            let claims = of(&headers);
            assert_eq!(claims == Claims::Impersonation, only_impersonates, "{name}");
            headers.insert("impersonate-user", HeaderValue::from_static("jane"));
            let has_credentials = expected && !only_impersonates;
            let claims = of(&headers);
            assert_eq!(claims == Claims::Credentials, has_credentials, "{name}");
        }
    }
}
