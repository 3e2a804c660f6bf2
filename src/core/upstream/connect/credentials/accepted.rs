//! The callers' credentials that the API server has accepted.
//!
//! The API server closes an HTTP/2 connection, with all its requests, when it answers 401 on it,
//! and when it answers an anonymous request on it. So only requests with accepted credentials share
//! connections.

use std::hash::{BuildHasher, Hasher, RandomState};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::concurrency::Generations;

/// The most credentials in each generation.
const GENERATION: usize = 4096;

/// A set of recently accepted credentials, of bounded size. It contains keyed hashes only.
pub(in crate::upstream) struct AcceptedCredentials {
    hasher: RandomState,
    accepted: Mutex<Generations<u64, ()>>,
}

/// The keyed hash of a request's bearer token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) struct Digest(u64);

/// Returns the token that the API server reads in the header `Authorization`: the API server splits
/// the header at each space, and ignores the part after the token. Returns `None` if the API server
/// reads no token, and so takes the sender for the anonymous user.
pub fn bearer_token(authorization: &HeaderValue) -> Option<&str> {
    let mut parts = authorization.to_str().ok()?.trim().split(' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Default for AcceptedCredentials {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            accepted: Mutex::new(Generations::new(GENERATION)),
        }
    }
}

impl AcceptedCredentials {
    /// Returns the digest of the token in `headers`, if there is one. Other credentials are none:
    /// the API server takes their owner for the anonymous user.
    pub(in crate::upstream) fn digest(&self, headers: &HeaderMap) -> Option<Digest> {
        // The API server reads only the first line.
        let token = bearer_token(headers.get(AUTHORIZATION)?)?;
        Some(self.digest_of(token))
    }

    /// Returns the digest of a token.
    pub(in crate::upstream) fn digest_of(&self, token: &str) -> Digest {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(token.as_bytes());
        Digest(hasher.finish())
    }

    /// Returns true if the API server accepted the credentials when they were last used.
    pub(in crate::upstream) fn contains(&self, Digest(digest): Digest) -> bool {
        let mut accepted = self.accepted.lock();
        let is_accepted = accepted.get(&digest).is_some();
        if is_accepted {
            // Credentials that are used are not forgotten.
            accepted.insert(digest, ());
        }
        is_accepted
    }

    /// Records whether the API server accepted the credentials.
    pub(in crate::upstream) fn record(&self, Digest(digest): Digest, is_accepted: bool) {
        let mut accepted = self.accepted.lock();
        match is_accepted {
            true => {
                accepted.insert(digest, ());
            }
            false => accepted.remove(&digest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> HeaderMap {
        let value = format!("Bearer {number}").parse().expect("a header");
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn credentials_are_forgotten_after_a_refusal_and_when_many_others_are_used() {
        let accepted = AcceptedCredentials::default();
        let digest = |number| accepted.digest(&token(number)).expect("credentials");
        assert_eq!(accepted.digest(&HeaderMap::new()), None);
        assert!(!accepted.contains(digest(0)) && !accepted.contains(digest(1)));
        accepted.record(digest(0), true);
        accepted.record(digest(1), true);
        assert!(accepted.contains(digest(0)) && accepted.contains(digest(1)));
        assert!(!accepted.contains(digest(2)));
        accepted.record(digest(0), false);
        assert!(!accepted.contains(digest(0)));

        accepted.record(digest(2), true);
        for number in 3..3 + 2 * GENERATION {
            accepted.record(digest(number), true);
            assert!(accepted.contains(digest(1)), "it is still used");
        }
        assert!(!accepted.contains(digest(2)));
    }

    #[test]
    fn only_a_token_can_be_accepted() {
        let accepted = AcceptedCredentials::default();
        let digest = |lines: &[&str]| {
            let lines = lines.iter().map(|line| line.parse().expect("a header"));
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line);
            }
            accepted.digest(&headers)
        };
        let token = accepted.digest_of("abc");
        for line in ["Bearer abc", "bearer abc", " Bearer abc def"] {
            assert_eq!(digest(&[line]), Some(token), "{line}");
        }
        assert_eq!(digest(&["Bearer abc", "Basic x"]), Some(token));
        for line in ["Basic abc", "Bearer", "Bearer  abc", "", "abc"] {
            assert_eq!(digest(&[line]), None, "{line}");
        }
        assert_eq!(digest(&["Basic x", "Bearer abc"]), None);
    }
}
