//! Finds out the user of a caller, and what the user may read.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use kubefan_core::api::Status;
use kubefan_core::concurrency::Full;
use kubefan_core::informer::{InformerSet, LiveRestMapper};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::Client;
use prometheus::IntCounter;
use rustls::DistinguishedName;
use tokio::time::Instant;

use super::asking::failed_attempts::Source;
use super::asking::reviews::{Judgement, Reviewer};
use super::callers::caller::{Credential, KnownUser};
use super::callers::claims;
use super::callers::claims::Claims;
use super::callers::unaccepted::{UnacceptedPermit, UnacceptedRequests};
use super::certificates::authorities;
use super::certificates::authorities::AuthorityFiles;
use super::identification::Identification;
use super::metrics::Metrics;
use super::open_watches::{OpenWatch, OpenWatches, Recent};
use super::rbac::{RecentChanges, RoleWatch};
use super::rights::authorizer::Authorizer;
use super::tokens::authenticator::Authenticator;
use super::tokens::deleted_objects::DeletedObjects;
use super::tokens::deletions::Deletions;
use super::{
    Attributes, Bearer, Caller, Config, ImpersonatedUser, KnownCaller, Mode, User, Verdict,
};
use crate::limit::Limit;
use crate::net::{Abort, ClientConnection, Peer};

/// Finds out the user of a caller, and what the user may read. Clones are cheap and share what is
/// remembered.
#[derive(Clone)]
pub struct AccessControl {
    inner: Option<Arc<Inner>>,
    unaccepted: Arc<UnacceptedRequests>,
}

struct Inner {
    client: Client,
    callers: Identification,
    authorizer: Arc<Authorizer>,
    open_watches: OpenWatches,
    recent: Recent,
    stale_decisions: IntCounter,
}

impl AccessControl {
    /// Creates an access control that asks the API server of `client`.
    ///
    /// # Panics
    /// If it is called twice with the same `registry`, unless callers are not authenticated.
    pub fn new(
        config: &Config,
        client: Client,
        metrics: Metrics,
        registry: &Registry,
        shutdown: &Shutdown,
    ) -> Self {
        let (queue, limited) = (metrics.unaccepted.clone(), metrics.anonymous.clone());
        let unaccepted = UnacceptedRequests::new(config.max_failed_per_second, queue, limited);
        let inner = (config.mode != Mode::None)
            .then(|| Inner::start(config, client, metrics, registry, shutdown));
        Self {
            inner: inner.map(Arc::new),
            unaccepted: Arc::new(unaccepted),
        }
    }

    /// Loads the authorities of client certificates, and reloads them when they change. Calls
    /// `on_change` with their names, now and after each change. Does nothing if callers are not
    /// authenticated.
    ///
    /// # Errors
    /// If what the API server publishes can't be used. It may be missing.
    pub async fn load_authorities(
        &self,
        files: AuthorityFiles,
        on_change: impl Fn(Vec<DistinguishedName>) + Send + Sync + 'static,
        shutdown: &Shutdown,
    ) -> anyhow::Result<()> {
        let Some(inner) = &self.inner else {
            return Ok(());
        };
        let current = Arc::clone(&inner.callers.proofs.current);
        let (of_watches, tasks) = (Arc::clone(inner), shutdown.clone());
        let on_change = move |names| {
            on_change(names);
            let inner = Arc::clone(&of_watches);
            tasks.spawn_background(async move {
                inner.callers.proofs.recheck(&inner.open_watches).await
            });
        };
        authorities::load(files, inner.client.clone(), current, on_change, shutdown).await
    }

    /// Watches roles and bindings through `informers`, as far as kubefan may, so that lost rights
    /// are noticed at once. Also notices deleted ServiceAccounts and pods in caches. Does nothing
    /// if callers are not authenticated.
    ///
    /// # Panics
    /// If it is called twice with the same `registry`, unless callers are not authenticated.
    pub fn watch_roles(
        &self,
        informers: &InformerSet,
        rest_mapper: &Arc<LiveRestMapper>,
        registry: &Registry,
        shutdown: &Shutdown,
    ) {
        if let Some(inner) = &self.inner {
            Deletions::start(
                Arc::clone(&inner.recent.deleted),
                inner.open_watches.clone(),
                informers.clone(),
                registry,
                shutdown,
            );
            RoleWatch::start(
                Arc::clone(&inner.recent.roles),
                inner.open_watches.clone(),
                informers.clone(),
                Arc::clone(rest_mapper),
                registry,
                shutdown,
            );
        }
    }

    /// Returns the caller of a request with `headers`, which came from `peer` on `connection`.
    /// Removes the headers that only an authenticating proxy may send.
    ///
    /// # Errors
    /// The Status that the request is refused with.
    pub async fn caller(
        &self,
        headers: &mut HeaderMap,
        connection: &ClientConnection,
        peer: &Peer,
    ) -> Result<Caller, Status> {
        claims::mark_sensitive(headers);
        let Some(inner) = &self.inner else {
            return Ok(match claims::of(headers) {
                Claims::Credentials => Caller::Unknown,
                Claims::Impersonation => Caller::Impersonating,
                Claims::None => Caller::Trusted,
            });
        };
        inner.callers.caller(headers, connection, peer).await
    }

    /// Returns true if callers are authenticated.
    pub fn authenticates(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns `wanted` as a caller, if the API server lets `caller` impersonate it. What this user may
    /// read is asked for with kubefan's rights.
    ///
    /// # Errors
    /// A 403 if `caller` may not impersonate it, and a 429 if too many questions wait.
    pub async fn acting_as(
        &self,
        caller: &Arc<KnownCaller>,
        wanted: &ImpersonatedUser,
    ) -> Result<Arc<KnownCaller>, Status> {
        for right in wanted.rights() {
            match self.may_read(caller, &right).await {
                Verdict::Allowed | Verdict::Stale => {}
                Verdict::NotAllowed => return Err(may_not_impersonate(caller.user(), &right)),
                Verdict::Busy => return Err(Limit::Reviews.status()),
            }
        }
        let inner = self.inner.as_ref();
        let inner = inner.ok_or_else(|| Status::bad_request("callers are not authenticated"))?;
        let user = inner.callers.authenticator.known(wanted.user());
        Ok(Arc::new(KnownCaller::new(user, Credential::None)))
    }

    /// Makes kubefan ask again for the owner of the token of `caller`, because the API server does
    /// not accept the token any more. Asks when the owner is next needed, and at once if watches
    /// are open with the token.
    pub fn not_accepted(&self, caller: &KnownCaller) {
        if let (Some(inner), Credential::Token(token)) = (&self.inner, &caller.credential) {
            inner.callers.authenticator.doubt(token);
            inner.callers.token_refused(token);
        }
    }

    /// Waits until a request of `peer` with `headers` may be forwarded, if the API server has not
    /// yet accepted its sender. Cancel safe.
    ///
    /// # Errors
    /// A 429 if its address sends too many such requests.
    pub async fn admit_unaccepted(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<UnacceptedPermit, Status> {
        let admitted = self.unaccepted.admit(headers, peer).await;
        admitted.map_err(|Full| Limit::UnacceptedCallers.status())
    }

    /// Counts that the API server answered 401 to a forwarded request of `peer`. An address that
    /// sends too many such requests must wait.
    pub fn refused(&self, peer: &Peer) {
        if let Some(inner) = &self.inner {
            let authenticator = &inner.callers.authenticator;
            authenticator.failed.count(Source::of(peer.address.ip()));
        }
    }

    /// Returns the bytes of what is remembered, and their upper limit, by kind: decisions, and the
    /// owners of tokens. Returns an empty list if callers are not authenticated.
    pub fn kept_bytes(&self) -> Vec<(&'static str, usize, usize)> {
        let Some(inner) = &self.inner else {
            return Vec::new();
        };
        let (decisions, most_decisions) = inner.authorizer.decision_bytes();
        let (tokens, most_tokens) = inner.callers.authenticator.token_bytes();
        vec![
            ("decision", decisions, most_decisions),
            ("token", tokens, most_tokens),
        ]
    }

    /// Returns whether the API server lets `caller` read what `attributes` describe. Asks the API
    /// server unless it answered a short time ago.
    pub async fn may_read(&self, caller: &Arc<KnownCaller>, attributes: &Attributes) -> Verdict {
        let Some(inner) = &self.inner else {
            return Verdict::NotAllowed;
        };
        let verdict = inner.authorizer.may_read(caller, attributes).await;
        let verdict = inner.authorizer.proven(caller, verdict).await;
        inner.counted(caller, verdict)
    }

    /// Returns the result of [`may_read`](Self::may_read) if a decision is remembered. Otherwise
    /// asks the API server only if a remembered yes may count in an outage, or if a yes may count
    /// for all names. Returns `None` in all other cases.
    pub async fn remembered(
        &self,
        caller: &Arc<KnownCaller>,
        attributes: &Attributes,
    ) -> Option<Verdict> {
        let inner = self.inner.as_ref()?;
        let authorizer = &inner.authorizer;
        let verdict = match authorizer.known(caller, attributes) {
            Some(verdict) => verdict,
            // Questions are boxed, so that the future is short if there is none.
            None if authorizer.was_allowed(caller, attributes) => {
                Box::pin(authorizer.may_read(caller, attributes)).await
            }
            None if Box::pin(authorizer.may_read_all_names(caller, attributes)).await => {
                Verdict::Allowed
            }
            None => return None,
        };
        let verdict = authorizer.proven(caller, verdict).await;
        Some(inner.counted(caller, verdict))
    }

    /// Returns how long a denial of `caller` is remembered; zero for nodes.
    pub fn denied_for(&self, caller: &KnownCaller) -> Duration {
        let inner = self.inner.as_ref();
        inner.map_or(Duration::ZERO, |inner| inner.authorizer.denied_for(caller))
    }

    /// Forgets that the API server's authorizers denied this read to `caller`, because the API
    /// server has since answered the read with something other than a refusal.
    pub fn not_denied(&self, caller: &KnownCaller, attributes: &Attributes) {
        if let Some(inner) = &self.inner {
            inner.authorizer.not_denied(caller, attributes);
        }
    }

    /// Judges the right of `caller` to what `attributes` describe repeatedly, until the returned
    /// guard is dropped. When the right is lost, the guard ends the body that owns it. If the body
    /// is not polled then, `abort` ends it. If kubefan has only a token of the caller, and not its
    /// user, judges only the token. Returns `None` if kubefan has neither.
    pub fn keep_judging(
        &self,
        caller: &Caller,
        attributes: Attributes,
        abort: Option<&Abort>,
    ) -> Option<OpenWatch> {
        let inner = self.inner.as_ref()?;
        match caller {
            Caller::Known(caller) => Some(inner.judged(caller, attributes, abort)),
            Caller::Unnamed(Bearer { token, .. }) => {
                let digest = inner.callers.authenticator.digest_unnamed(token);
                let user = Arc::new(KnownUser::unnamed(digest));
                let caller = KnownCaller::new(user, Credential::Token(token.clone()));
                let (watches, caller) = (&inner.open_watches, Arc::new(caller));
                Some(watches.open(&caller, Some(digest), None, abort.cloned()))
            }
            Caller::Trusted | Caller::Impersonating | Caller::Unknown | Caller::Refused => None,
        }
    }

    /// Remembers that the API server has answered a read of `caller` with success at `asked_at` or
    /// later, and so has authorized it.
    pub fn learn(&self, caller: &KnownCaller, attributes: &Attributes, asked_at: Instant) {
        if let Some(inner) = &self.inner {
            inner.authorizer.learn(caller, attributes, asked_at);
            if let Credential::Token(token) = &caller.credential {
                inner.callers.authenticator.accepted(token, asked_at);
            }
        }
    }

    /// Remembers for an outage that the API server has answered a GET of `path`, which names no
    /// resource, at `asked_at` or later. If `was_allowed`, `caller` may read the path, otherwise
    /// not.
    pub fn learn_path(
        &self,
        caller: &KnownCaller,
        path: &str,
        was_allowed: bool,
        asked_at: Instant,
    ) {
        if let Some(inner) = &self.inner {
            let judgement = if was_allowed {
                Judgement::Allowed
            } else {
                Judgement::Denied
            };
            let authorizer = &inner.authorizer;
            authorizer.learn_path(caller, path, judgement, asked_at);
        }
    }

    /// Returns true if the API server's last answer allowed `caller` to read `path`, and this
    /// answer still counts although the API server does not answer now. Counts a stale decision
    /// then.
    pub fn could_read_path(&self, caller: &KnownCaller, path: &str) -> bool {
        let Some(inner) = &self.inner else {
            return false;
        };
        let attributes = Attributes::of_path(path);
        let could_read = inner.authorizer.was_allowed(caller, &attributes);
        if could_read {
            inner.stale_decisions.inc();
        }
        could_read
    }
}

/// Returns the answer to a caller that may not impersonate a user.
fn may_not_impersonate(user: &User, right: &Attributes) -> Status {
    let message = format!(
        "User {:?} cannot impersonate {} {:?}, or the API server has not said so",
        user.name, right.resource, right.name
    );
    Status::failure(403, "Forbidden", message)
}

impl Inner {
    fn start(
        config: &Config,
        client: Client,
        metrics: Metrics,
        registry: &Registry,
        shutdown: &Shutdown,
    ) -> Self {
        let reviewer = Arc::new(Reviewer::new(client.clone(), metrics.reviews.clone()));
        let access_queue = metrics.access_queue.clone();
        let stale_decisions = metrics.stale.clone();
        let longest = config.stale.max(config.token_ttl).max(config.allowed_ttl);
        let recent = Recent {
            roles: Arc::new(RecentChanges::of_answers(longest)),
            deleted: Arc::new(DeletedObjects::of_answers(longest)),
        };
        let authenticator = Arc::new(Authenticator::new(
            Arc::clone(&reviewer),
            config,
            metrics,
            Arc::clone(&recent.deleted),
            shutdown.clone(),
        ));
        let authorizer = Arc::new(Authorizer::new(
            reviewer,
            Arc::clone(&authenticator),
            config,
            access_queue,
            Arc::clone(&recent.roles),
            shutdown.clone(),
        ));
        let reviews = Arc::clone(&authorizer);
        let open_watches = OpenWatches::start(config, reviews, recent.clone(), registry, shutdown);
        let watches = open_watches.clone();
        Self {
            client,
            callers: Identification::new(authenticator, watches, config.anonymous),
            authorizer,
            open_watches,
            recent,
            stale_decisions,
        }
    }

    /// Returns `verdict` about a read of `caller`, as stale if the caller's identity is stale.
    /// Counts stale verdicts.
    fn counted(&self, caller: &KnownCaller, verdict: Verdict) -> Verdict {
        let verdict = match verdict {
            Verdict::Allowed if caller.is_stale => Verdict::Stale,
            verdict => verdict,
        };
        if verdict == Verdict::Stale {
            self.stale_decisions.inc();
        }
        verdict
    }

    fn judged(
        &self,
        caller: &Arc<KnownCaller>,
        attributes: Attributes,
        abort: Option<&Abort>,
    ) -> OpenWatch {
        let token = match &caller.credential {
            Credential::Token(token) => Some(self.callers.authenticator.digest(token)),
            Credential::Certificate(_) | Credential::None => None,
        };
        let watches = &self.open_watches;
        let watch = watches.open(caller, token, Some(attributes), abort.cloned());
        // A change that happens after this check finds the watch.
        if !self.callers.proofs.hold(caller) {
            watches.revoke(&[watch.member]);
        }
        watch
    }
}
