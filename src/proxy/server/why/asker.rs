//! The caller that asks, and the user that it asks about; a limit of each caller's questions.

use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use kubefan_core::api::Status;
use kubefan_core::concurrency::{Generations, TokenBucket};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::question::Question;
use crate::identity::{Caller, ImpersonatedUser, UserKey, add_impersonation, has_credentials};
use crate::limit::Limit;
use crate::net::{ClientConnection, ClientHandle, Peer};
use crate::server::request::Exchange;
use crate::server::service::Server;

/// A user may ask this often: a question may cost the API server a few reviews.
const INTERVAL: Duration = Duration::from_millis(100);
/// The most questions that a user may ask at once.
const BURST: u32 = 10;
/// Half of the most users whose questions are counted.
const USERS: usize = 1_000;
/// Stands for credentials that are not read.
const UNREAD: HeaderValue = HeaderValue::from_static("Bearer unread");

/// Counts the questions of each user. `None` is the only user if callers are not authenticated.
pub(super) struct Askers {
    buckets: Mutex<Generations<Option<UserKey>, TokenBucket>>,
}

/// The caller of the request that is asked about, or why it would be refused.
pub(super) type ExpectedCaller = Result<Caller, Status>;

impl Default for Askers {
    fn default() -> Self {
        Self {
            buckets: Mutex::new(Generations::new(USERS)),
        }
    }
}

impl Askers {
    /// Returns the exchange of the request in `question`, and its caller. The caller is the one that
    /// asks, whom `headers` and `client` show, or the user that it impersonates.
    ///
    /// # Errors
    /// The Status of the refusal: only authenticated callers may ask, and not too often; a user may
    /// only be named by a caller that may impersonate it. A 503 if only the API server can identify
    /// the caller, and does not respond.
    pub(super) async fn exchange(
        &self,
        server: &Server,
        (headers, client): (HeaderMap, ClientHandle),
        question: Question,
    ) -> Result<(Box<Exchange>, ExpectedCaller), Status> {
        let caches = &server.inner.caches;
        let (access, limit) = (&caches.access, caches.request_timeout);
        let Question {
            mut request,
            has_credentials,
            user,
        } = question;
        let mut described = request.headers().clone();
        let end = (&client.connection, &client.peer);
        let caller = if access.authenticates() {
            let caller = self.known_caller(server, end, headers, (described, user));
            timeout(limit, caller).await
        } else {
            self.admit(server, None)?;
            if user.is_some() {
                let problem = "kubefan does not authenticate callers, so there is one user";
                return Err(Status::bad_request(format!("parameter as: {problem}")));
            }
            if has_credentials {
                described.insert(AUTHORIZATION, UNREAD);
            }
            let caller = access.caller(&mut described, end.0, end.1);
            timeout(limit, caller).await.map(Ok)
        };
        let caller = caller.unwrap_or_else(|_| Err(Status::timeout()))?;
        request.extensions_mut().insert(client);
        Ok((Exchange::of(request), caller))
    }

    /// Finds the caller if callers are authenticated: `own` are the headers of the request that asks,
    /// and `described` those of the request that it asks about.
    async fn known_caller(
        &self,
        server: &Server,
        (connection, peer): (&ClientConnection, &Peer),
        mut own: HeaderMap,
        (described, user): (HeaderMap, Option<ImpersonatedUser>),
    ) -> Result<ExpectedCaller, Status> {
        let access = &server.inner.caches.access;
        let mut claims = own.clone();
        let asking = access.caller(&mut own, connection, peer).await?;
        let known = asking.known().filter(|known| !known.user().is_anonymous());
        let known = known.ok_or_else(|| {
            let is_responding = server.inner.caches.informers.is_upstream_responding();
            unidentified(&asking, has_credentials(&claims), is_responding)
        })?;
        self.admit(server, Some(known.name_key()))?;
        if let Some(user) = user {
            let acting = access.acting_as(known, &user).await?;
            return Ok(Ok(Caller::Known(acting)));
        }
        if !has_credentials(&described) {
            return Ok(Ok(asking));
        }
        // The request names another user, beside the credentials of its sender. Other headers are not
        // added: they could change who its sender is.
        add_impersonation(&mut claims, &described);
        Ok(access.caller(&mut claims, connection, peer).await)
    }

    /// Counts a question of `user`.
    ///
    /// # Errors
    /// A 429, which is also counted, if the user asks too often.
    fn admit(&self, server: &Server, user: Option<UserKey>) -> Result<(), Status> {
        let taken = self.take(user);
        taken.map_err(|limit| server.inner.caches.shares.refuse(limit).status())
    }

    fn take(&self, user: Option<UserKey>) -> Result<(), Limit> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock();
        let bucket = buckets.get(&user).copied();
        let mut bucket = bucket.unwrap_or_else(|| TokenBucket::new(INTERVAL, BURST));
        if !bucket.has_token(now) {
            return Err(Limit::Questions);
        }
        bucket.take(now);
        buckets.insert(user, bucket);
        Ok(())
    }
}

/// Returns why a caller that is not identified gets no explanation.
fn unidentified(asking: &Caller, has_credentials: bool, is_upstream_responding: bool) -> Status {
    let is_unjudged = has_credentials && matches!(asking, Caller::Unknown | Caller::Unnamed(_));
    if is_unjudged && !is_upstream_responding {
        let message = "the API server does not respond, so kubefan can't find out who asks";
        return Status::unreachable(message);
    }
    let message = "Unauthorized: kubefan explains requests only to a caller that it can authenticate, \
                   as for the requests themselves";
    Status::failure(401, "Unauthorized", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_that_could_not_be_judged_are_the_fault_of_an_outage() {
        for (asking, has_credentials, is_upstream_responding, code) in [
            (Caller::Unknown, true, false, 503),
            (Caller::Unknown, true, true, 401),
            (Caller::Unknown, false, false, 401),
            (Caller::Refused, true, false, 401),
        ] {
            let status = unidentified(&asking, has_credentials, is_upstream_responding);
            assert_eq!(status.code, code, "{asking:?} {has_credentials}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_user_may_ask_ten_questions_a_second() {
        let askers = Askers::default();
        let users = [
            None,
            Some(UserKey::for_tests(1)),
            Some(UserKey::for_tests(2)),
        ];
        for user in users {
            for _ in 0..BURST {
                askers.take(user).expect("a token");
            }
            let refused = askers.take(user).expect_err("no token");
            assert_eq!(refused, Limit::Questions);
        }
        tokio::time::advance(INTERVAL).await;
        for user in users {
            askers.take(user).expect("a token");
            askers.take(user).expect_err("no token");
        }
    }
}
