//! The caller of a request.

use std::sync::Arc;

use crate::identity::User;
use crate::identity::certificates::proof::Proof;
use crate::identity::tokens::token::{Digest, Digester, Token};

/// The caller of a request, as far as kubefan knows it.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Callers are not authenticated, and this one has no credentials. kubefan answers it with its
    /// own rights.
    Trusted,
    /// Callers are not authenticated, and this one only says as whom it acts. Its requests are sent
    /// with kubefan's identity, and the API server decides whether that may impersonate the user.
    /// They are never answered from a cache, which has what kubefan may read.
    Impersonating,
    /// The caller has no credentials, or some that only the API server can judge. The request is
    /// forwarded with them and without an identity of kubefan's, and never answered from a cache.
    Unknown,
    /// The same for a caller with a token whose owner does not matter, because it acts as another user,
    /// or which only the API server reads, because it is a WebSocket subprotocol.
    Unnamed(Bearer),
    /// The same for a caller whose token the API server refused a moment ago, which was counted.
    Refused,
    /// The API server, or a certificate authority that it trusts, names the caller's user.
    Known(Arc<KnownCaller>),
}

/// A token of a caller whose user is not known.
#[derive(Clone, Debug)]
pub struct Bearer {
    pub(in crate::identity) token: Token,
    /// The owner, whose share its requests have; `None` if kubefan has not asked.
    pub(in crate::identity) owner: Option<Arc<KnownUser>>,
}

/// A caller whose user is known.
#[derive(Debug)]
pub struct KnownCaller {
    pub(in crate::identity) user: Arc<KnownUser>,
    pub(in crate::identity) credential: Credential,
    /// True if the API server could not be asked again for the owner of the token.
    pub(in crate::identity) is_stale: bool,
}

/// With what a caller proved its identity, and so how its requests are forwarded.
#[derive(Clone, Debug)]
pub(in crate::identity) enum Credential {
    /// A token that the API server accepts: requests are forwarded with it.
    Token(Token),
    /// A certificate, or the word of an authenticating proxy. The API server never sees it, so
    /// kubefan impersonates the user.
    Certificate(Proof),
    /// Nothing: the user is the anonymous one. Requests are forwarded as they are, and kubefan asks
    /// with its own rights what the user may read.
    None,
}

/// A user with the digests by which its decisions are remembered, and its shares counted.
#[derive(Debug)]
pub(in crate::identity) struct KnownUser {
    pub(in crate::identity) user: User,
    /// The digest of everything in `user` that an authorizer may read.
    pub(in crate::identity) digest: Digest,
    /// The digest of the name alone.
    pub(in crate::identity) name: Digest,
    /// The digest of what all accounts of a namespace have in common; of the name for other users.
    pub(in crate::identity) tenant: Digest,
}

/// The user for which a question is asked, and the tenant that it belongs to. Both take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::identity) struct Asker {
    pub(in crate::identity) tenant: Digest,
    pub(in crate::identity) user: Digest,
}

impl KnownUser {
    /// A user of whom only a token with this digest is known.
    pub(in crate::identity) fn unnamed(token: Digest) -> Self {
        Self {
            user: User::default(),
            digest: token,
            name: token,
            tenant: token,
        }
    }

    /// `ignored_extra` are the keys of `extra` that no authorizer reads.
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
    /// The key of the name of the user whose share the caller's requests have, also if they act as
    /// another user; `None` if it is not known.
    pub fn name_key(&self) -> Option<UserKey> {
        match self {
            Self::Known(caller) => Some(caller.name_key()),
            Self::Unnamed(bearer) => bearer.owner.as_ref().map(|owner| UserKey(owner.name)),
            Self::Trusted | Self::Impersonating | Self::Unknown | Self::Refused => None,
        }
    }
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
            name: Digest::for_tests(number),
            tenant: Digest::for_tests(number),
        };
        Self {
            user: Arc::new(user),
            credential: Credential::Certificate(Proof::for_tests(None)),
            is_stale: false,
        }
    }

    /// The key of the caller's user; the same for all callers that the authorizers can't tell apart.
    pub fn key(&self) -> UserKey {
        UserKey(self.user.digest)
    }

    /// The key of the name of the caller's user. All tokens of a service account have the same, so
    /// that a user with many tokens has no more than its share.
    pub fn name_key(&self) -> UserKey {
        UserKey(self.user.name)
    }

    /// The same user without credentials, so that kubefan asks about it with its own.
    pub(in crate::identity) fn without_credentials(&self) -> Self {
        Self {
            user: Arc::clone(&self.user),
            credential: Credential::None,
            is_stale: self.is_stale,
        }
    }

    /// The caller's user.
    pub fn user(&self) -> &User {
        &self.user.user
    }

    /// True if kubefan has to impersonate the user to forward its requests.
    pub fn is_impersonated(&self) -> bool {
        matches!(self.credential, Credential::Certificate(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
