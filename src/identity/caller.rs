//! The caller of a request.

use std::sync::Arc;

use super::User;
use super::token::Digest;
use super::token::Token;

/// The caller of a request, as far as kubefan knows it.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Callers are not authenticated, and this one has no credentials. kubefan answers it with its
    /// own rights.
    Trusted,
    /// The caller has no credentials, or some that only the API server can judge. The request is
    /// forwarded with them and without an identity of kubefan's, and never answered from a cache.
    Unknown,
    /// The API server, or a certificate authority that it trusts, names the caller's user.
    Known(Arc<KnownCaller>),
}

/// A caller whose user is known.
#[derive(Debug)]
pub struct KnownCaller {
    pub(super) user: Arc<KnownUser>,
    pub(super) credential: Credential,
}

/// With what a caller proved its identity, and so how its requests are forwarded.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    /// A token that the API server accepts: requests are forwarded with it.
    Token(Token),
    /// A certificate, or the word of an authenticating proxy: the API server never sees it, so
    /// kubefan impersonates the user.
    Certificate,
    /// Nothing: the user is the anonymous one. Requests are forwarded as they are, and kubefan asks
    /// with its own rights what the user may read.
    None,
}

/// A user with the digest by which its decisions are remembered.
#[derive(Debug)]
pub(super) struct KnownUser {
    pub(super) user: User,
    /// The digest of everything in `user` that an authorizer may read.
    pub(super) digest: Digest,
}

/// What identifies a user to the authorizers. It shows nothing about the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UserKey(Digest);

impl UserKey {
    #[cfg(test)]
    pub(crate) fn for_tests(number: u8) -> Self {
        Self(Digest::for_tests(number))
    }
}

impl KnownCaller {
    #[cfg(test)]
    pub(crate) fn for_tests(number: u8) -> Self {
        let user = KnownUser {
            user: User::default(),
            digest: Digest::for_tests(number),
        };
        Self {
            user: Arc::new(user),
            credential: Credential::Certificate,
        }
    }

    /// The key of the caller's user; the same for all callers that the authorizers can't tell apart.
    pub fn key(&self) -> UserKey {
        UserKey(self.user.digest)
    }

    /// The caller's user.
    pub fn user(&self) -> &User {
        &self.user.user
    }

    /// True if kubefan has to impersonate the user to forward its requests.
    pub fn is_impersonated(&self) -> bool {
        matches!(self.credential, Credential::Certificate)
    }
}
