//! The authentication of tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use kubefan_core::shutdown::Shutdown;
use tokio::time::Instant;

use super::deleted_objects::DeletedObjects;
use super::token::{Digest, Digester, Token};
use crate::identity::asking::answers::{Answer, Answers};
use crate::identity::asking::failed_attempts::{FailedAttempts, Source};
use crate::identity::asking::queue::AskQueue;
use crate::identity::asking::reviews::{Connection, Reviewer, TokenOwner};
use crate::identity::callers::caller::KnownUser;
use crate::identity::metrics::Metrics;
use crate::identity::{Config, Mode, User};

/// The number of tokens with remembered owners. For any other token, kubefan asks the API server.
const TOKENS: usize = 100_000;
/// How long kubefan does not ask again about a refused token. The API server also refuses a valid
/// token while one of its authenticators fails.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// For how long after a token was good its refusals do not count as wrong credentials. While one of
/// the API server's authenticators fails, the API server refuses good tokens, and the addresses
/// that send them must not be limited.
const WAS_GOOD_FOR: Duration = Duration::from_secs(600);

/// Finds out the owners of tokens, and remembers them.
pub(in crate::identity) struct Authenticator {
    reviewer: Arc<Reviewer>,
    digester: Digester,
    owners: Answers<Digest, Owner>,
    /// Addresses take turns, so that an address that sends many new tokens does not delay the
    /// others.
    queue: AskQueue<Source>,
    /// The credentials that the API server did not accept, by the addresses that sent them.
    pub(in crate::identity) failed: FailedAttempts<Source>,
    metrics: Metrics,
    config: Config,
    /// The deletions of objects for which tokens were issued. An owner counts only if the API
    /// server was asked for it after these deletions.
    deleted: Arc<DeletedObjects>,
}

/// The owner of a token, according to the last answer of the API server.
#[derive(Clone, Debug)]
pub(in crate::identity) enum Owner {
    User(Arc<KnownUser>),
    /// The API server does not answer now. It last named this owner longer ago than owners are
    /// remembered.
    Stale(Arc<KnownUser>),
    /// The API server does not accept the token. It accepted the token until `good_until`, if it
    /// ever did.
    Refused {
        good_until: Option<Instant>,
    },
    Unknown,
    /// The API server does not answer.
    NoAnswer,
    /// kubefan did not ask the API server: too many questions wait, or the sender's address failed
    /// too often.
    Busy,
}

/// Returns the bytes that are stored for a token, without its owner.
fn weight_of_token(_: &Digest) -> usize {
    Answers::<Digest, Owner>::ENTRY_BYTES
}

impl Owner {
    /// Returns the bytes that are stored for the owner of a token.
    fn weight(&self) -> usize {
        match self {
            Self::User(known) | Self::Stale(known) => {
                size_of::<KnownUser>() + 2 * size_of::<usize>() + known.user.weight()
            }
            Self::Refused { .. } | Self::Unknown | Self::NoAnswer | Self::Busy => 0,
        }
    }

    /// Returns how long an owner is of use after it has expired. `stale_for` is how long an owner
    /// counts if the API server does not answer.
    fn useful_for(&self, stale_for: Duration) -> Duration {
        match self {
            Self::User(_) => WAS_GOOD_FOR.max(stale_for),
            Self::Refused {
                good_until: Some(_),
            } => WAS_GOOD_FOR,
            _ => Duration::ZERO,
        }
    }
}

impl Authenticator {
    pub(in crate::identity) fn new(
        reviewer: Arc<Reviewer>,
        config: &Config,
        metrics: Metrics,
        deleted: Arc<DeletedObjects>,
        shutdown: Shutdown,
    ) -> Self {
        let stale_for = config.stale;
        Self {
            reviewer,
            digester: Digester::new(),
            owners: Answers::new(
                TOKENS,
                (config.token_bytes, (weight_of_token, Owner::weight)),
                move |owner: &Owner| owner.useful_for(stale_for),
                shutdown,
            ),
            queue: config.queue(metrics.token_queue.clone()),
            failed: FailedAttempts::new(config.max_failed_per_second),
            metrics,
            config: config.clone(),
            deleted,
        }
    }

    /// Returns the bytes of the remembered owners of tokens, and the upper limit of these bytes.
    pub(in crate::identity) fn token_bytes(&self) -> (usize, usize) {
        (self.owners.weight(), self.config.token_bytes)
    }

    /// Returns the owner of `token`, which was sent from `source`. Asks the API server unless
    /// kubefan did so a short time ago.
    pub(in crate::identity) async fn owner(
        self: &Arc<Self>,
        token: &Token,
        source: Source,
    ) -> Owner {
        let digest = self.digest(token);
        let since = Instant::now();
        let earliest = |owner: &_| self.earliest(owner, since);
        if let Some(owner @ Owner::User(_)) = self.owners.known(&digest, earliest) {
            return owner;
        }
        // A token that was good before is probably good now, whichever address sends it.
        let was_good = self.good_until(&digest).is_some();
        if !was_good && self.is_limited(source) {
            return Owner::Busy;
        }
        let is_asker = AtomicBool::new(false);
        let ask = || {
            is_asker.store(true, Ordering::Relaxed);
            let (authenticator, token) = (Arc::clone(self), token.clone());
            async move { authenticator.ask(&token, source).await }
        };
        let owner = self.owners.get(&digest, earliest, ask).await;
        if let Some(Owner::Refused { good_until: None }) = owner {
            // A refusal was counted when it arrived, even if the caller that asked had left.
            if !is_asker.load(Ordering::Relaxed) {
                self.failed.count(source);
            }
            // Other requests of this source may have failed since, even with the same token.
            if self.is_limited(source) {
                return Owner::Busy;
            }
        }
        self.or_last(owner, token, &digest)
    }

    /// Returns `owner` if the API server has answered. Otherwise returns the last owner of the
    /// token as stale, if it may count although the API server does not answer. Conditions: the
    /// owner is not too old, the token has not expired, and no object for which the token was
    /// issued was deleted since.
    fn or_last(&self, owner: Option<Owner>, token: &Token, digest: &Digest) -> Owner {
        let owner = owner.unwrap_or(Owner::Unknown);
        if !matches!(owner, Owner::NoAnswer) {
            return owner;
        }
        let deleted = |owner: &Owner| match owner {
            Owner::User(user) => self.deleted.settled(&user.user),
            _ => None,
        };
        let has_expired = token.expires_in(SystemTime::now()) == Some(Duration::ZERO);
        match self.owners.last_within(digest, self.config.stale, deleted) {
            Some(Owner::User(user)) if !has_expired => Owner::Stale(user),
            _ => Owner::NoAnswer,
        }
    }

    /// Returns the owner of `token` if the API server has accepted the token within the time
    /// `within`. Otherwise asks the API server, when `asker` may ask in `queue`. If the API server
    /// does not answer, the result may be the last owner that it named.
    pub(in crate::identity) async fn owner_within(
        self: &Arc<Self>,
        token: &Token,
        within: Duration,
        (queue, asker): (&AskQueue<Digest>, Digest),
    ) -> Owner {
        let digest = self.digest(token);
        let now = Instant::now();
        let latest = now.checked_sub(within);
        let earliest = |owner: &Owner| self.earliest(owner, now).max(latest);
        let ask = || {
            let (authenticator, token) = (Arc::clone(self), token.clone());
            let queue = queue.clone();
            async move {
                let Ok(_permit) = queue.admit(asker).await else {
                    return (Owner::Busy, None);
                };
                authenticator.ask_admitted(&token, None).await
            }
        };
        let owner = self.owners.get(&digest, earliest, ask).await;
        self.or_last(owner, token, &digest)
    }

    /// Notes that the API server has accepted `token` in a request that it received after
    /// `asked_at`.
    pub(in crate::identity) fn accepted(&self, token: &Token, asked_at: Instant) {
        let digest = self.digest(token);
        self.owners
            .confirm(&digest, asked_at, |owner| matches!(owner, Owner::User(_)));
    }

    /// Makes kubefan ask again for the owner of `token` when it is next needed, because the API
    /// server has refused the token.
    pub(in crate::identity) fn doubt(&self, token: &Token) {
        let digest = self.digest(token);
        let good_until = self.good_until(&digest);
        let owner = Owner::Refused { good_until };
        self.owners
            .learn(&digest, owner, Instant::now(), Duration::ZERO);
    }

    /// Returns until when a token was good, according to the remembered answer. Returns `None` if
    /// the token was never good, or has not been good for [`WAS_GOOD_FOR`].
    fn good_until(&self, digest: &Digest) -> Option<Instant> {
        let until = match self.owners.last(digest)? {
            (Owner::User(_), until) => Some(until.min(Instant::now())),
            (Owner::Refused { good_until }, _) => good_until,
            (Owner::Stale(_) | Owner::Unknown | Owner::NoAnswer | Owner::Busy, _) => None,
        };
        until.filter(|until| until.elapsed() < WAS_GOOD_FOR)
    }

    /// Returns true, and counts this, if credentials of `source` that kubefan has not seen accepted
    /// must wait.
    pub(in crate::identity) fn is_limited(&self, source: Source) -> bool {
        let is_limited = self.failed.is_exhausted(source);
        if is_limited {
            self.metrics.limited.inc();
        }
        is_limited
    }

    /// Returns the moment before which the API server must not have been asked for `owner`, for a
    /// request of `since`. There is one if an object for which the owner's token was issued was
    /// deleted since, or so shortly before that the API server may not have noticed it.
    fn earliest(&self, owner: &Owner, since: Instant) -> Option<Instant> {
        match owner {
            Owner::User(user) => self.deleted.earliest_owner(&user.user, since),
            Owner::Stale(_)
            | Owner::Refused { .. }
            | Owner::Unknown
            | Owner::NoAnswer
            | Owner::Busy => None,
        }
    }

    /// Asks the API server for the owner of `token` even if one is remembered, and remembers a
    /// definite answer.
    pub(in crate::identity) async fn check_again(
        &self,
        token: &Token,
    ) -> TokenOwner<Arc<KnownUser>> {
        let asked_at = Instant::now();
        // A second refusal may end watches, so it must not come over the connection of the first.
        let owner = self.review(token, Connection::Closed).await;
        let digest = self.digest(token);
        match owner {
            TokenOwner::User(user) => {
                let user = self.known(user);
                let owner = Owner::User(Arc::clone(&user));
                let validity = self.validity(token);
                self.owners.learn(&digest, owner, asked_at, validity);
                TokenOwner::User(user)
            }
            TokenOwner::Refused => {
                let good_until = self.good_until(&digest);
                let owner = Owner::Refused { good_until };
                self.owners.learn(&digest, owner, asked_at, REFUSED_FOR);
                TokenOwner::Refused
            }
            TokenOwner::MayNotAsk => TokenOwner::MayNotAsk,
            TokenOwner::Unclear | TokenOwner::NoAnswer => TokenOwner::Unclear,
        }
    }

    /// Returns the digest by which the owner of `token` is remembered.
    pub(in crate::identity) fn digest(&self, token: &Token) -> Digest {
        self.digester.digest(token.secret().as_bytes())
    }

    /// Returns another digest for `token`, used if its owner does not matter.
    pub(in crate::identity) fn digest_unnamed(&self, token: &Token) -> Digest {
        let text = format!("unnamed {}", token.secret());
        self.digester.digest(text.as_bytes())
    }

    async fn review(&self, token: &Token, connection: Connection) -> TokenOwner {
        if self.config.mode == Mode::Delegated {
            self.reviewer.token_review(token, connection).await
        } else {
            self.reviewer.self_review(token, connection).await
        }
    }

    /// Returns how long the owner of `token` is remembered.
    fn validity(&self, token: &Token) -> Duration {
        let expires_in = token.expires_in(SystemTime::now());
        let longest = self.config.token_ttl;
        expires_in.map_or(longest, |left| left.min(longest))
    }

    async fn ask(&self, token: &Token, source: Source) -> Answer<Owner> {
        let Ok(_permit) = self.queue.admit(source).await else {
            return (Owner::Busy, None);
        };
        let digest = self.digest(token);
        if self.good_until(&digest).is_none() && self.failed.is_exhausted(source) {
            return (Owner::Busy, None);
        }
        self.ask_admitted(token, Some(source)).await
    }

    /// Asks the API server for the owner of `token`. If the answer shows that the token was good or
    /// wrong, counts this for `source`, the address that sent the token.
    async fn ask_admitted(&self, token: &Token, source: Option<Source>) -> Answer<Owner> {
        let digest = self.digest(token);
        match self.review(token, Connection::Kept).await {
            TokenOwner::User(user) => {
                if let (Some(source), Some((Owner::Refused { .. }, _))) =
                    (source, self.owners.last(&digest))
                {
                    // The API server refused this good token, and perhaps others of the address.
                    self.failed.forgive(source);
                }
                let validity = self.validity(token);
                (Owner::User(self.known(user)), Some(validity))
            }
            TokenOwner::Refused => {
                let good_until = self.good_until(&digest);
                if let (None, Some(source)) = (good_until, source) {
                    self.failed.count(source);
                }
                (Owner::Refused { good_until }, Some(REFUSED_FOR))
            }
            TokenOwner::MayNotAsk => (Owner::Unknown, Some(self.config.token_ttl)),
            TokenOwner::Unclear => (Owner::Unknown, None),
            TokenOwner::NoAnswer => (Owner::NoAnswer, None),
        }
    }

    /// Returns `user` with its digests.
    pub(in crate::identity) fn known(&self, user: User) -> Arc<KnownUser> {
        let ignored = &self.config.ignored_extra;
        Arc::new(KnownUser::new(user, &self.digester, ignored))
    }
}

#[cfg(test)]
mod tests;
