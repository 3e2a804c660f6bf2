//! Finds out the callers of requests.

use std::sync::Arc;

use http::HeaderMap;
use kubefan_core::api::Status;

use super::asking::failed_attempts::Source;
use super::callers::caller::{Bearer, Caller, Credential, KnownCaller};
use super::callers::claims;
use super::callers::user::User;
use super::open_watches::OpenWatches;
use super::proofs::Proofs;
use super::tokens::authenticator::{Authenticator, Owner};
use super::tokens::token::{Authorization, Token};
use crate::limit::Limit;
use crate::net::{ClientConnection, Peer};

/// Finds out the callers of requests by their certificates and tokens.
pub(super) struct Identification {
    pub(super) proofs: Proofs,
    pub(super) authenticator: Arc<Authenticator>,
    /// The caller of all requests without credentials, if these requests may be answered from
    /// caches.
    anonymous: Option<Arc<KnownCaller>>,
    open_watches: OpenWatches,
}

impl Identification {
    /// Creates a value without authorities of client certificates. If `allows_anonymous`, requests
    /// without credentials have a known caller.
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        open_watches: OpenWatches,
        allows_anonymous: bool,
    ) -> Self {
        let anonymous = allows_anonymous.then(|| {
            let user = authenticator.known(User::anonymous());
            KnownCaller::new(user, Credential::None)
        });
        Self {
            proofs: Proofs::default(),
            authenticator,
            anonymous: anonymous.map(Arc::new),
            open_watches,
        }
    }

    /// Returns the caller of a request with `headers`, which came from `peer` on `connection`.
    /// Removes the headers that only an authenticating proxy may send.
    ///
    /// # Errors
    /// The Status that the request is refused with.
    pub(super) async fn caller(
        &self,
        headers: &mut HeaderMap,
        connection: &ClientConnection,
        peer: &Peer,
    ) -> Result<Caller, Status> {
        if let Some(caller) = self.certified(headers, connection, peer)? {
            return Ok(Caller::Known(Arc::new(caller)));
        }
        let source = Source::of(peer.address.ip());
        match Authorization::of(headers) {
            Authorization::Token(token) if !claims::has_token_protocol(headers) => {
                self.owner(token, headers, source).await
            }
            // The API server may accept either of two tokens, and kubefan can't judge other
            // credentials.
            Authorization::Token(_) | Authorization::Other => self.unknown(None, headers, source),
            // A bad certificate does not count as a missing one: the API server does not take its
            // owner for the anonymous user.
            Authorization::None
                if peer.certificates.is_none() && !claims::has_credentials(headers) =>
            {
                let anonymous = self.anonymous.clone();
                Ok(anonymous.map_or(Caller::Unknown, Caller::Known))
            }
            Authorization::None => {
                let token = claims::token_of_protocol(headers);
                self.unknown(token, headers, source)
            }
            Authorization::Repeated => Err(Status::bad_request(
                "kubefan does not accept more than one Authorization header",
            )),
        }
    }

    /// Returns the caller that the client certificate of `peer` proves, if it does.
    fn certified(
        &self,
        headers: &mut HeaderMap,
        connection: &ClientConnection,
        peer: &Peer,
    ) -> Result<Option<KnownCaller>, Status> {
        let certified = match &peer.certificates {
            Some(chain) => self.proofs.certified(headers, connection, chain)?,
            None => None,
        };
        claims::remove_remote(headers);
        if let Some(proxy) = &self.proofs.current.load().front_proxy {
            proxy.headers.remove_from(headers);
        }
        let Some((user, proof)) = certified else {
            return Ok(None);
        };
        if claims::has_impersonation(headers) {
            return Err(Status::failure(
                403,
                "Forbidden",
                "a user with a client certificate cannot impersonate others through kubefan; use a token",
            ));
        }
        let user = self.authenticator.known(user);
        Ok(Some(KnownCaller::new(user, Credential::Certificate(proof))))
    }

    /// Returns the caller with `token`, which is the only credential in `headers`.
    async fn owner(
        &self,
        token: Token,
        headers: &HeaderMap,
        source: Source,
    ) -> Result<Caller, Status> {
        let (user, is_stale) = match self.authenticator.owner(&token, source).await {
            Owner::User(user) => (Some(user), false),
            Owner::Stale(user) => (Some(user), true),
            Owner::Unknown | Owner::NoAnswer => (None, false),
            Owner::Refused { good_until } => {
                if good_until.is_some() {
                    self.token_refused(&token);
                }
                return Ok(Caller::Refused);
            }
            Owner::Busy => return Err(Limit::Reviews.status()),
        };
        if claims::has_impersonation(headers) {
            // The requests count for the share of the token's owner, whatever user they act as.
            return Ok(Caller::Unnamed(Bearer { token, owner: user }));
        }
        Ok(user.map_or(Caller::Unknown, |user| {
            Caller::Known(Arc::new(KnownCaller {
                user,
                credential: Credential::Token(token),
                is_stale,
            }))
        }))
    }

    /// Returns a caller that only the API server can identify. `token` is the caller's token, if
    /// kubefan can read it.
    fn unknown(
        &self,
        token: Option<Token>,
        headers: &HeaderMap,
        source: Source,
    ) -> Result<Caller, Status> {
        if claims::has_credentials(headers) && self.authenticator.is_limited(source) {
            return Err(Limit::Reviews.status());
        }
        let unnamed = |token| Caller::Unnamed(Bearer { token, owner: None });
        Ok(token.map_or(Caller::Unknown, unnamed))
    }

    /// Asks about the token of the watches that are open with `token`, because the API server has
    /// refused it.
    pub(super) fn token_refused(&self, token: &Token) {
        let of = &self.authenticator;
        let digests = [of.digest(token), of.digest_unnamed(token)];
        self.open_watches.token_refused(&digests);
    }
}
