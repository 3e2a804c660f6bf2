//! The user of a request.

use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use super::User;
use super::answers::Answer;
use super::answers::Answers;
use super::caller::KnownUser;
use super::reviews::Reviewer;
use super::reviews::TokenOwner;
use super::token::Digest;
use super::token::Digester;
use super::token::Token;
use crate::shutdown::Shutdown;

/// The number of tokens whose owners are remembered.
const TOKENS: usize = 100_000;
/// How long a refused token is not asked about again. The API server refuses a valid token too while
/// one of its authenticators fails.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Finds out the owners of tokens, and remembers them.
pub(super) struct Authenticator {
    reviewer: Arc<Reviewer>,
    digester: Digester,
    owners: Answers<Digest, Owner>,
    /// True to ask with kubefan's rights (TokenReview), false to ask with the token.
    delegated: bool,
    remembered_for: Duration,
    /// The keys of `User::extra` that no authorizer reads.
    ignored_extra: Vec<String>,
}

/// The owner of a token, as far as kubefan knows.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    User(Arc<KnownUser>),
    /// The API server does not accept the token.
    Refused,
    Unknown,
}

impl Authenticator {
    pub(super) fn new(
        reviewer: Arc<Reviewer>,
        delegated: bool,
        remembered_for: Duration,
        ignored_extra: Vec<String>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            reviewer,
            digester: Digester::new(),
            owners: Answers::new(TOKENS, shutdown),
            delegated,
            remembered_for,
            ignored_extra,
        }
    }

    /// The owner of `token`. Asks the API server unless it did so a short time ago.
    pub(super) async fn owner(self: &Arc<Self>, token: &Token) -> Owner {
        let digest = self.digester.digest(token.secret().as_bytes());
        let ask = || {
            let (authenticator, token) = (Arc::clone(self), token.clone());
            async move { authenticator.ask(&token).await }
        };
        let owner = self.owners.get(&digest, ask).await;
        owner.unwrap_or(Owner::Unknown)
    }

    async fn ask(&self, token: &Token) -> Answer<Owner> {
        let owner = match self.delegated {
            true => self.reviewer.token_review(token).await,
            false => self.reviewer.self_review(token).await,
        };
        match owner {
            TokenOwner::User(user) => {
                let expires_in = token.expires_in(SystemTime::now());
                let validity =
                    expires_in.map_or(self.remembered_for, |left| left.min(self.remembered_for));
                Answer::Definite(Owner::User(self.known(user)), validity)
            }
            TokenOwner::Refused => Answer::Definite(Owner::Refused, REFUSED_FOR),
            TokenOwner::MayNotAsk => Answer::Definite(Owner::Unknown, self.remembered_for),
            TokenOwner::Unclear => Answer::OfAsker(Owner::Unknown),
        }
    }

    /// `user` with its digest.
    pub(super) fn known(&self, user: User) -> Arc<KnownUser> {
        let mut visible = user.clone();
        visible
            .extra
            .retain(|key, _| !self.ignored_extra.contains(key));
        // The order of groups never changes a decision.
        visible.groups.sort_unstable();
        let json = serde_json::to_vec(&visible).expect("a user is plain text");
        let digest = self.digester.digest(&json);
        Arc::new(KnownUser { user, digest })
    }
}
