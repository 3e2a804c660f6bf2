//! Repeats the API server's 403 for a read, so that a client that repeats the read costs no further
//! calls.
//!
//! A 403 is stored for as long as a denial is remembered, and is repeated only for an equal request
//! of the user that got it. So a client gets exactly what the API server would answer, except for
//! the values of the headers `Audit-Id` and `Date`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, DATE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use kubefan_core::{body, upstream};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::identity::{KnownCaller, UserKey};
use crate::ledger::Budget;
use crate::server::answers::rescue;

/// Upper limit, in bytes, of a request's target and headers together with its answer.
const MAX_ENTRY: usize = 16 << 10;
/// The upper limit of the bytes of all answers to one user is the budget divided by this number.
const USER_SHARE: usize = 16;
/// How long a 403 that has begun may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The header that identifies one request.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The 403s of the last few seconds.
pub(in crate::server) struct ForbiddenAnswers {
    kept: Mutex<Kept>,
    budget: Budget,
}

#[derive(Default)]
struct Kept {
    answers: HashMap<Arc<ForbiddenRead>, ForbiddenAnswer>,
    /// All reads in `answers`, in the order in which they were stored. All answers are stored for
    /// about as long, so they expire in this order.
    order: VecDeque<Arc<ForbiddenRead>>,
    bytes: usize,
    bytes_of_user: HashMap<UserKey, usize>,
}

/// A read that a user may not do: all parts of the request that may change the text of a 403.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) struct ForbiddenRead {
    user: UserKey,
    method: Method,
    /// Path and query as the client sent them.
    target: String,
    accept: Vec<HeaderValue>,
    /// The API server indents JSON for programs such as curl and browsers, which it recognizes by
    /// this header.
    user_agent: Option<HeaderValue>,
}

struct ForbiddenAnswer {
    headers: HeaderMap,
    body: Bytes,
    until: Instant,
}

impl ForbiddenRead {
    /// Returns `None` if the request asks for an upgrade, or is too long to be stored.
    pub(in crate::server) fn of(request: &Request<Body>, caller: &KnownCaller) -> Option<Self> {
        if upstream::is_upgrade(request.headers()) {
            return None;
        }
        let headers = request.headers();
        let target = request.uri().path_and_query()?;
        let read = Self {
            user: caller.key(),
            method: request.method().clone(),
            target: target.as_str().to_owned(),
            accept: headers.get_all(ACCEPT).iter().cloned().collect(),
            user_agent: headers.get(USER_AGENT).cloned(),
        };
        (read.len() <= MAX_ENTRY).then_some(read)
    }

    fn len(&self) -> usize {
        let values = self.accept.iter().chain(&self.user_agent);
        self.target.len() + values.map(HeaderValue::len).sum::<usize>()
    }
}

impl ForbiddenAnswers {
    /// Creates an empty store of at most `budget`.
    pub(in crate::server) fn new(budget: Budget) -> Self {
        Self {
            kept: Mutex::default(),
            budget,
        }
    }

    /// Returns the stored answer to `read`, if it has not expired.
    pub(in crate::server) fn answer(&self, read: &ForbiddenRead) -> Option<Response<Body>> {
        let kept = self.kept.lock();
        let answer = kept.answers.get(read)?;
        if answer.until <= Instant::now() {
            return None;
        }
        let mut response = Response::new(body::full(answer.body.clone()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        *response.headers_mut() = answer.headers.clone();
        Some(response)
    }

    /// Returns `response`. If it is a short 403, also stores it until `keep_for` after `asked_at`.
    ///
    /// # Errors
    /// The Status for the client, if the API server broke off the 403.
    pub(in crate::server) async fn keep(
        &self,
        read: ForbiddenRead,
        response: Response<Body>,
        asked_at: Instant,
        keep_for: Duration,
    ) -> Result<Response<Body>, Status> {
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        // The answer to a HEAD announces the length of a body that it does not have.
        let has_body = read.method != Method::HEAD;
        let is_short = has_body && length.is_some_and(|length: usize| length <= MAX_ENTRY);
        let is_forbidden = response.status() == StatusCode::FORBIDDEN;
        if !is_forbidden || !is_short || keep_for.is_zero() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = timeout(BODY_TIMEOUT, upstream::collect(body, MAX_ENTRY)).await;
        let is_whole = |body: &Bytes| Some(body.len()) == length;
        let Some(body) = body.ok().and_then(Result::ok).filter(is_whole) else {
            return Err(rescue::broken_off());
        };
        let mut headers = parts.headers.clone();
        headers.remove(AUDIT_ID);
        headers.remove(DATE);
        let answer = ForbiddenAnswer {
            headers,
            body: body.clone(),
            until: asked_at + keep_for,
        };
        let mut kept = self.kept.lock();
        kept.insert(read, answer, self.budget.limit());
        self.budget.set_used(kept.bytes);
        drop(kept);
        Ok(Response::from_parts(parts, body::full(body)))
    }
}

impl Kept {
    fn insert(&mut self, read: ForbiddenRead, answer: ForbiddenAnswer, limit: usize) {
        let now = Instant::now();
        while let Some(oldest) = self.order.front()
            && self
                .answers
                .get(oldest)
                .is_none_or(|answer| answer.until <= now)
        {
            let oldest = self.order.pop_front().expect("it is the front");
            self.remove(&oldest);
        }
        let read = Arc::new(read);
        if self.answers.get(&read).is_some_and(|kept| kept.until > now) {
            // A concurrent request got the same answer.
            return;
        }
        self.remove(&read);
        let len = read.len() + answer.len();
        let of_user = self.bytes_of_user.get(&read.user).copied();
        let of_user = of_user.unwrap_or_default() + len;
        if self.bytes + len > limit || of_user > limit / USER_SHARE {
            return;
        }
        self.bytes += len;
        self.bytes_of_user.insert(read.user, of_user);
        self.order.push_back(Arc::clone(&read));
        self.answers.insert(read, answer);
    }

    fn remove(&mut self, read: &ForbiddenRead) {
        let Some(answer) = self.answers.remove(read) else {
            return;
        };
        let len = read.len() + answer.len();
        self.bytes -= len;
        if let Some(of_user) = self.bytes_of_user.get_mut(&read.user) {
            *of_user -= len;
            if *of_user == 0 {
                self.bytes_of_user.remove(&read.user);
            }
        }
    }
}

impl ForbiddenAnswer {
    fn len(&self) -> usize {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
        self.body.len() + headers.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::advance;

    use super::*;

    const KEEP: Duration = Duration::from_secs(2);
    const LIMIT: usize = 1 << 20;

    fn read(user: u8, target: &str, accept: &'static str) -> ForbiddenRead {
        ForbiddenRead {
            user: UserKey::for_tests(user),
            method: Method::GET,
            target: target.to_owned(),
            accept: vec![HeaderValue::from_static(accept)],
            user_agent: None,
        }
    }

    fn answer(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
        let text = text.into();
        let response = Response::builder()
            .status(status)
            .header(CONTENT_LENGTH, text.len())
            .header(AUDIT_ID, "1")
            .header("x-other", "2");
        response.body(body::full(text)).expect("a response")
    }

    async fn keep(answers: &ForbiddenAnswers, read: ForbiddenRead, answer: Response<Body>) {
        let kept = answers.keep(read, answer, Instant::now(), KEEP).await;
        assert!(kept.expect("an answer").headers().contains_key(AUDIT_ID));
    }

    #[tokio::test(start_paused = true)]
    async fn a_403_is_repeated_for_the_same_read_of_the_same_user() {
        let answers = ForbiddenAnswers::new(Budget::for_tests(LIMIT));
        let no = answer(StatusCode::FORBIDDEN, "no");
        keep(&answers, read(1, "/a", "json"), no).await;
        for (other, expected) in [
            (read(1, "/a", "json"), true),
            (read(2, "/a", "json"), false),
            (read(1, "/b", "json"), false),
            (read(1, "/a", "yaml"), false),
        ] {
            assert_eq!(answers.answer(&other).is_some(), expected, "{other:?}");
        }
        let kept = answers.answer(&read(1, "/a", "json")).expect("the 403");
        assert_eq!(kept.status(), StatusCode::FORBIDDEN);
        assert_eq!(kept.headers()["x-other"], "2");
        assert!(!kept.headers().contains_key(AUDIT_ID));
        let body = kept.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "no");
        advance(KEEP).await;
        assert!(answers.answer(&read(1, "/a", "json")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn other_answers_are_not_kept() {
        let answers = ForbiddenAnswers::new(Budget::for_tests(LIMIT));
        for (status, length) in [(200, 1), (404, 1), (401, 1), (403, MAX_ENTRY + 1)] {
            let status = StatusCode::from_u16(status).expect("a status");
            let other = answer(status, vec![0; length]);
            keep(&answers, read(1, "/a", "json"), other).await;
            assert!(answers.answer(&read(1, "/a", "json")).is_none(), "{status}");
        }
        let no = answer(StatusCode::FORBIDDEN, "no");
        let node = answers.keep(read(1, "/a", ""), no, Instant::now(), Duration::ZERO);
        node.await.expect("an answer");
        assert!(answers.answer(&read(1, "/a", "")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_bounded_for_each_user_and_in_all() {
        let answers = ForbiddenAnswers::new(Budget::for_tests(LIMIT));
        let long = || answer(StatusCode::FORBIDDEN, vec![0; 4 << 10]);
        for user in 0..20 {
            for number in 0..200 {
                let read = read(user, &format!("/{number}"), "");
                keep(&answers, read, long()).await;
            }
            let kept = answers.kept.lock();
            assert!(kept.bytes <= LIMIT && kept.bytes > 0, "{}", kept.bytes);
            let of_user = kept.bytes_of_user.values();
            assert!(
                of_user
                    .max()
                    .is_some_and(|bytes| *bytes <= LIMIT / USER_SHARE)
            );
        }
        advance(KEEP).await;
        keep(&answers, read(1, "/last", ""), long()).await;
        let kept = answers.kept.lock();
        assert_eq!((kept.answers.len(), kept.order.len()), (1, 1));
        assert!(kept.bytes < MAX_ENTRY && answers.budget.used() == kept.bytes);
        assert_eq!(kept.bytes_of_user.len(), 1);
    }
}
