//! Bearer tokens.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use kubefan_core::upstream::bearer_token;
use serde::Deserialize;

/// A bearer token. It is never printed.
#[derive(Clone)]
pub(crate) struct Token {
    text: Arc<str>,
}

/// What the `Authorization` headers of a request contain.
#[derive(Debug)]
pub(crate) enum Authorization {
    /// There is no such header, or it is empty.
    None,
    /// The API server reads this bearer token.
    Token(Token),
    /// Another kind of credentials.
    Other,
    /// There is more than one such header. The API server would read only the first.
    Repeated,
}

/// A keyed hash. It reveals neither the secret nor whether two secrets are similar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    #[cfg(test)]
    pub(in crate::identity) fn for_tests(number: u8) -> Self {
        Self([number; 32])
    }
}

/// Creates digests with a random key that never leaves the process.
pub(in crate::identity) struct Digester {
    key: hmac::Key,
}

impl Authorization {
    /// Reads the `Authorization` header as the API server does.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let Some(line) = lines.next() else {
            return Self::None;
        };
        if lines.next().is_some() {
            return Self::Repeated;
        }
        match bearer_token(line) {
            Some(token) => Self::Token(Token { text: token.into() }),
            None if line.as_bytes().trim_ascii().is_empty() => Self::None,
            None => Self::Other,
        }
    }
}

impl Token {
    /// Returns a token that was not sent in a header; `None` if it can't be sent in one.
    pub(in crate::identity) fn from_text(text: &str) -> Option<Self> {
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self { text: text.into() })
    }

    /// Returns the header that carries the token, marked as sensitive.
    ///
    /// # Panics
    /// Never: the token is from a header.
    pub(in crate::identity) fn header(&self) -> HeaderValue {
        let header = HeaderValue::try_from(format!("Bearer {}", self.text));
        let mut header = header.expect("the token is from a header");
        header.set_sensitive(true);
        header
    }

    /// Returns the token itself, for a TokenReview.
    pub(in crate::identity) fn secret(&self) -> &str {
        &self.text
    }

    /// Returns how long the token is valid after `now`, according to its claim `exp` (RFC 7519);
    /// `None` if the token is not a JWT or has no such claim. The signature is not checked, so the
    /// claim may only shorten the validity that the API server has confirmed.
    pub(in crate::identity) fn expires_in(&self, now: SystemTime) -> Option<Duration> {
        #[derive(Deserialize)]
        struct Claims {
            exp: f64,
        }
        let payload = self.text.split('.').nth(1)?;
        let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
        let claims: Claims = serde_json::from_slice(&payload).ok()?;
        let now = now.duration_since(UNIX_EPOCH).ok()?;
        let expires = Duration::try_from_secs_f64(claims.exp.max(0.0)).ok()?;
        Some(expires.saturating_sub(now))
    }

    #[cfg(test)]
    pub(in crate::identity) fn new(text: &str) -> Self {
        Self { text: text.into() }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Digester {
    /// Creates a digester with a new random key.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    pub(in crate::identity) fn new() -> Self {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        Self {
            key: key.expect("random numbers"),
        }
    }

    /// Returns the digest of `secret`.
    pub(in crate::identity) fn digest(&self, secret: &[u8]) -> Digest {
        let tag = hmac::sign(&self.key, secret);
        let bytes = tag.as_ref().try_into();
        Digest(bytes.expect("HMAC-SHA256 has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(lines: &[&str]) -> Authorization {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, line.parse().expect("a header value"));
        }
        Authorization::of(&headers)
    }

    #[test]
    fn the_header_is_read_as_the_api_server_reads_it() {
        for (line, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("BEARER abc", Some("abc")),
            (" Bearer abc ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Bearerabc", None),
            ("Basic abc", None),
        ] {
            let read = match authorization(&[line]) {
                Authorization::Token(token) => Some(token.text),
                Authorization::Other => None,
                Authorization::None | Authorization::Repeated => panic!("{line} has credentials"),
            };
            assert_eq!(read.as_deref(), token, "{line}");
        }
        assert!(matches!(authorization(&[]), Authorization::None));
        assert!(matches!(authorization(&[" "]), Authorization::None));
        let two = authorization(&["Bearer a", "Bearer a"]);
        assert!(matches!(two, Authorization::Repeated));
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = Token::new("a-secret");
        assert_eq!(format!("{token:?}"), "Token");
        let header = token.header();
        assert!(header.is_sensitive());
        assert_eq!(header, "Bearer a-secret");
    }

    #[test]
    fn the_expiry_is_read_from_a_jwt_only() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let jwt = |claims: &str| Token::new(&format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims)));
        let expires_in = |token: Token| token.expires_in(now).map(|left| left.as_secs());
        assert_eq!(expires_in(jwt(r#"{"exp":1060}"#)), Some(60));
        assert_eq!(expires_in(jwt(r#"{"exp":10}"#)), Some(0));
        assert_eq!(expires_in(jwt(r#"{"exp":-1}"#)), Some(0));
        assert_eq!(expires_in(jwt(r#"{"exp":1e300}"#)), None);
        assert_eq!(expires_in(jwt(r#"{}"#)), None);
        assert_eq!(expires_in(Token::new("opaque")), None);
    }

    #[test]
    fn digests_differ_by_secret_and_by_process() {
        let (one, other) = (Digester::new(), Digester::new());
        assert_eq!(one.digest(b"a"), one.digest(b"a"));
        assert_ne!(one.digest(b"a"), one.digest(b"b"));
        assert_ne!(one.digest(b"a"), other.digest(b"a"));
    }
}
