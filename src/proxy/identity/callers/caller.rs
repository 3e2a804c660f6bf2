//! The caller of a request.

use std::sync::Arc;

use crate::identity::User;
use crate::identity::certificates::proof::Proof;
use crate::identity::tokens::token::{Digest, Digester, Token};

/// The caller of a request, as kubefan has identified it.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Callers are not authenticated, and this caller has no credentials. kubefan answers it with
    /// kubefan's rights.
    Trusted,
    /// Callers are not authenticated, and this caller has no credentials, but names a user to
    /// impersonate. Its requests are sent with kubefan's identity, and the API server decides
    /// whether kubefan may impersonate the user. The requests are never answered from a cache,
    /// because a cache contains what kubefan may read.
    Impersonating,
    /// The caller has no credentials, or credentials that only the API server can judge. The
    /// request is forwarded with these credentials and without kubefan's identity. It is never
    /// answered from a cache.
    Unknown,
    /// The caller has a token, but kubefan does not use the token's owner as the caller's user: the
    /// caller acts as another user, or only the API server reads the token, because it is a
    /// WebSocket subprotocol. Requests are handled as those of [`Unknown`](Self::Unknown).
    Unnamed(Bearer),
    /// The caller has a token that the API server refused a moment ago. The refusal was counted.
    /// Requests are handled as those of [`Unknown`](Self::Unknown).
    Refused,
    /// The API server, or a certificate authority that it trusts, names the caller's user.
    Known(Arc<KnownCaller>),
}

/// The token of a caller that kubefan has not identified.
#[derive(Clone, Debug)]
pub struct Bearer {
    pub(in crate::identity) token: Token,
    /// The owner of the token. The requests count for the owner's share. `None` if kubefan has not
    /// asked for the owner.
    pub(in crate::identity) owner: Option<Arc<KnownUser>>,
}

/// A caller with an identified user.
#[derive(Debug)]
pub struct KnownCaller {
    pub(in crate::identity) user: Arc<KnownUser>,
    pub(in crate::identity) credential: Credential,
    /// True if the API server could not be asked again for the owner of the token.
    pub(in crate::identity) is_stale: bool,
}

/// The proof of a caller's identity. It decides how the caller's requests are forwarded.
#[derive(Clone, Debug)]
pub(in crate::identity) enum Credential {
    /// A token that the API server accepts. Requests are forwarded with the token.
    Token(Token),
    /// A certificate, or the headers of an authenticating proxy. The API server never sees this
    /// proof, so kubefan impersonates the user.
    Certificate(Proof),
    /// No proof: the user is the anonymous one. Requests are forwarded as they are, and kubefan
    /// asks with its own rights what the user may read.
    None,
}

/// A user with its digests. Decisions about the user are remembered by these digests, and its
/// shares are counted by them.
#[derive(Debug)]
pub(in crate::identity) struct KnownUser {
    pub(in crate::identity) user: User,
    /// The digest of everything in `user` that an authorizer may read.
    pub(in crate::identity) digest: Digest,
    /// The digest of the name alone.
    pub(in crate::identity) name: Digest,
    /// The digest of the group that all service accounts of a namespace have; for other users, the
    /// digest of the name.
    pub(in crate::identity) tenant: Digest,
}

/// The user for whom a question is asked, and the user's tenant. Tenants take turns, and so do the
/// users of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Asker {
    pub(in crate::identity) tenant: Digest,
    pub(in crate::identity) user: Digest,
}

impl KnownUser {
    /// Creates a user from the digest of its token, if nothing else about the user has been found
    /// out.
    pub(in crate::identity) fn unnamed(token: Digest) -> Self {
        Self {
            user: User::default(),
            digest: token,
            name: token,
            tenant: token,
        }
    }

    /// Creates a user with its digests. `ignored_extra` are the keys of `extra` that no authorizer
    /// reads.
    pub(in crate::identity) fn new(
        user: User,
        digester: &Digester,
        ignored_extra: &[String],
    ) -> Self {
        let mut visible = user.clone();
        let extra = &mut visible.extra;
        extra.retain(|key, _| !ignored_extra.contains(key));
        // The order of groups never changes a decision.
        visible.groups.sort_unstable();
        let json = serde_json::to_vec(&visible).expect("a user is plain text");
        let digest = digester.digest(&json);
        let name = digester.digest(user.name.as_bytes());
        let namespace = user.service_account_namespace();
        let tenant = namespace.map_or(name, |namespace| {
            let accounts = format!("system:serviceaccounts:{namespace}");
            digester.digest(accounts.as_bytes())
        });
        Self {
            user,
            digest,
            name,
            tenant,
        }
    }

    pub(in crate::identity) fn asker(&self) -> Asker {
        Asker {
            tenant: self.tenant,
            user: self.name,
        }
    }
}

impl Caller {
    /// Returns the caller if the API server, or an authority that it trusts, names the caller's
    /// user.
    pub fn known(&self) -> Option<&Arc<KnownCaller>> {
        match self {
            Self::Known(caller) => Some(caller),
            _ => None,
        }
    }

    /// Returns true if kubefan may answer the caller from a cache, as far as its identity matters.
    /// The rights of a known caller still decide.
    pub fn may_use_cache(&self) -> bool {
        matches!(self, Self::Trusted | Self::Known(_))
    }

    /// Returns the key of the name of a user. The caller's requests count for the share of this
    /// user, even if the caller acts as another user. Returns `None` if the caller has not been
    /// identified.
    pub fn name_key(&self) -> Option<UserKey> {
        match self {
            Self::Unnamed(bearer) => bearer.owner.as_ref().map(|owner| UserKey(owner.name)),
            caller => caller.known().map(|caller| caller.name_key()),
        }
    }
}

/// A key that identifies a user to the authorizers. It reveals nothing about the user.
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
        let user = KnownUser::unnamed(Digest::for_tests(number));
        let credential = Credential::Certificate(Proof::for_tests(None));
        Self::new(Arc::new(user), credential)
    }

    /// Returns the key of the caller's user. Callers that look alike to the authorizers have equal
    /// keys.
    pub fn key(&self) -> UserKey {
        UserKey(self.user.digest)
    }

    /// Returns the key of the name of the caller's user. All tokens of a service account have the
    /// same key, so that a user with many tokens has no more than its share.
    pub fn name_key(&self) -> UserKey {
        UserKey(self.user.name)
    }

    /// Creates a caller with a user that is not stale.
    pub(in crate::identity) fn new(user: Arc<KnownUser>, credential: Credential) -> Self {
        Self {
            user,
            credential,
            is_stale: false,
        }
    }

    /// Returns the caller's user.
    pub fn user(&self) -> &User {
        &self.user.user
    }

    /// Returns true if kubefan must impersonate the user to forward its requests.
    pub fn is_impersonated(&self) -> bool {
        matches!(self.credential, Credential::Certificate(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_known_or_trusted_or_only_the_api_server_knows_them() {
        let known = || Arc::new(KnownCaller::for_tests(1));
        let bearer = |owner| Bearer {
            token: Token::new("t"),
            owner,
        };
        let owner = Some(Arc::clone(&known().user));
        for (caller, is_known, may_use_cache, has_name) in [
            (Caller::Trusted, false, true, false),
            (Caller::Known(known()), true, true, true),
            (Caller::Impersonating, false, false, false),
            (Caller::Unknown, false, false, false),
            (Caller::Unnamed(bearer(None)), false, false, false),
            (Caller::Unnamed(bearer(owner)), false, false, true),
            (Caller::Refused, false, false, false),
        ] {
            let found = (
                caller.known().is_some(),
                caller.may_use_cache(),
                caller.name_key().is_some(),
            );
            assert_eq!(found, (is_known, may_use_cache, has_name), "{caller:?}");
        }
    }

    #[test]
    fn tokens_of_one_account_share_its_name_and_perhaps_its_decisions() {
        let digester = Digester::new();
        let user = |pod: &str| User {
            name: "system:serviceaccount:shop:web".to_owned(),
            extra: [("pod".to_owned(), vec![pod.to_owned()])].into(),
            ..User::default()
        };
        let known = |user: User, ignored: &[String]| KnownUser::new(user, &digester, ignored);
        for (ignored, shares_decisions) in [(&[][..], false), (&["pod".to_owned()], true)] {
            let (one, other) = (known(user("a"), ignored), known(user("b"), ignored));
            assert!(one.name == other.name);
            assert_eq!(one.digest == other.digest, shares_decisions);
        }
        let other = User {
            name: "jane".to_owned(),
            ..User::default()
        };
        assert!(known(other, &[]).name != known(user("a"), &[]).name);
    }

    #[test]
    fn the_accounts_of_a_namespace_are_one_tenant() {
        let digester = Digester::new();
        let tenant = |name: &str| {
            let user = User {
                name: name.to_owned(),
                ..User::default()
            };
            KnownUser::new(user, &digester, &[]).tenant
        };
        let web = tenant("system:serviceaccount:shop:web");
        assert!(web == tenant("system:serviceaccount:shop:db"));
        assert!(web != tenant("system:serviceaccount:other:web"));
        assert!(tenant("jane") != tenant("joe"));
    }
}
