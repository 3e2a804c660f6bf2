//! Open watches: judges their users' rights again while they are open, and ends them when a right
//! is lost.
//!
//! ```text
//! module       what it does
//! open_watch   the guard that a body owns; it ends the body
//! register     which watches are open, by question; what answers do (no I/O)
//! schedule     when a question is asked again
//! queue        the order of the questions that are due
//! turns        the order of tenants and users, which take turns
//! metrics      counts
//! ```
//!
//! Watches with equal users and attributes share a question. One task asks all questions. A watch
//! ends only on a clear no, or if its token is refused twice. In an outage of the API server the
//! watch goes on. If kubefan sees that a right is lost, because roles granted it and do not any
//! more, the watches with this right get no events until the API server has answered. So the length
//! of the queue of questions does not matter.

mod metrics;
mod open_watch;
mod queue;
mod register;
mod schedule;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::VecDeque;
use std::future::pending;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubefan_core::concurrency::TokenBucket;
use kubefan_core::shutdown::{Phase, Shutdown};
use kubefan_core::telemetry::Registry;
use metrics::Metrics;
pub use open_watch::OpenWatch;
use open_watch::{End, Ending};
use parking_lot::Mutex;
use queue::InFlight;
use register::{About, Inquiry, Member, Register};
pub(super) use register::{Concern, Recent};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::asking::reviews::{Judgement, TokenOwner};
use super::callers::caller::{Asker, Credential, KnownCaller, KnownUser};
use super::tokens::token::{Digest, Token};
use super::{Attributes, Config, User};
use crate::net::Abort;

/// How many questions are in flight concurrently.
const CONCURRENT: usize = 64;
/// How many of them may be about one tenant, and how many about one user. If answers take 100 ms,
/// both numbers permit more questions than `max_reviews_per_second` does by default.
const MOST_IN_FLIGHT: InFlight = InFlight {
    of_tenant: CONCURRENT / 4,
    of_user: CONCURRENT / 8,
};
/// The questions that the rate permits in this number of seconds may be asked at once.
const BURST_SECONDS: u32 = 2;
/// How many questions are put into the queue while one lock is held after a change, and how many
/// watches move to other questions.
const CHANGED_AT_ONCE: usize = 256;
/// The number of watches whose certificates are verified before other tasks may run.
const RECHECKED_AT_ONCE: usize = 16;
/// How long a watch may take to end before it is aborted.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Identifies a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct MemberId(u64);

/// Identifies the group of watches that one question decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct GroupId(u64);

/// An answer of the API server that has not arrived.
pub(super) type Asking<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Asks the API server even if answers are remembered.
pub(super) trait Reviews: Send + Sync + 'static {
    /// Asks whether `caller` may read what `attributes` describe.
    fn judge(&self, caller: &Arc<KnownCaller>, attributes: &Arc<Attributes>) -> Asking<Judgement>;

    /// Returns true if a right of `caller` to all names covers each name.
    fn covers_names(&self, caller: &KnownCaller) -> bool;

    /// Returns the same as `covers_names`, but asks again first if the last answer is old. Returns
    /// `None` if there is no answer.
    fn confirm_names(&self, caller: &Arc<KnownCaller>) -> Asking<Option<bool>>;

    /// Asks for the owner of `token`.
    fn check(&self, token: &Token) -> Asking<TokenOwner<Arc<KnownUser>>>;
}

/// All open watches of authenticated callers. Clones share the watches.
#[derive(Clone)]
pub(super) struct OpenWatches {
    inner: Arc<Inner>,
}

struct Inner {
    reviews: Box<dyn Reviews>,
    state: Mutex<State>,
    /// Notified when the task must look at the state sooner than planned.
    wake: Notify,
    metrics: Metrics,
    shutdown: Shutdown,
}

struct State {
    register: Register,
    /// How many questions may be asked now.
    pace: TokenBucket,
    in_flight: usize,
    /// True once a drain ends watches. Watches that get no events then end too, so that they do not
    /// delay the drain.
    ends_held: bool,
    /// When the task next looks at the state; `None` if it waits for a notification.
    next_look: Option<Instant>,
    /// Watches that must end by the given time.
    endings: VecDeque<(Instant, Ending)>,
}

/// The work to do at one moment.
struct Work {
    /// The questions to ask.
    inquiries: Vec<Inquiry>,
    /// The number of watches that end without an answer, because their client certificates have
    /// expired, or because kubefan drains.
    ended: usize,
    /// The watches that have not ended in time.
    over: Vec<Ending>,
    /// When to look at the state again.
    next_look: Option<Instant>,
}

impl OpenWatches {
    /// Creates an empty set of watches, and a background task of `shutdown` that asks `reviews`.
    /// `recent` contains each change before it is reported here.
    pub(super) fn start(
        config: &Config,
        reviews: impl Reviews,
        recent: Recent,
        registry: &Registry,
        shutdown: &Shutdown,
    ) -> Self {
        let state = State {
            register: Register::new(config.clone(), recent),
            pace: pace(config.max_reviews_per_second),
            in_flight: 0,
            ends_held: false,
            next_look: None,
            endings: VecDeque::new(),
        };
        let inner = Inner {
            reviews: Box::new(reviews),
            state: Mutex::new(state),
            wake: Notify::new(),
            metrics: Metrics::new(registry),
            shutdown: shutdown.clone(),
        };
        let watches = Self {
            inner: Arc::new(inner),
        };
        let inner = Arc::downgrade(&watches.inner);
        registry.on_scrape(move |samples| {
            if let Some(inner) = inner.upgrade() {
                metrics::sample(&inner.state.lock().register, samples);
            }
        });
        let task = watches.clone();
        shutdown.spawn_background(async move { task.run().await });
        watches
    }

    /// Judges the right of `caller` to what `attributes` describe until the returned guard is
    /// dropped. Without `attributes`, judges only the caller's token. `token` is the digest of that
    /// token. The answer that allowed the watch may be from before a recent change. `abort` ends
    /// the watch if it is not polled.
    pub(super) fn open(
        &self,
        caller: &Arc<KnownCaller>,
        token: Option<Digest>,
        attributes: Option<Attributes>,
        abort: Option<Abort>,
    ) -> OpenWatch {
        let end = Arc::new(End::default());
        let attributes = attributes.map(|attributes| self.questions(caller, attributes));
        let (attributes, narrower) = attributes.unzip();
        let member = Member {
            caller: Arc::clone(caller),
            right: None,
            token: None,
            narrower: narrower.flatten(),
            opened_at: Instant::now(),
            // Without the lock, because it may take some milliseconds.
            expires_at: expires_at(&caller.credential),
            end: Arc::clone(&end),
            abort,
        };
        let member = self.with(|state| {
            // A change that happens after the lock is taken finds the watch.
            let now = Instant::now();
            state.register.open(member, token, attributes, now)
        });
        OpenWatch::new(end, self.clone(), member)
    }

    /// Returns what to ask about the right to a watch with these attributes, and what to ask after a
    /// no.
    fn questions(
        &self,
        caller: &KnownCaller,
        attributes: Attributes,
    ) -> (Arc<Attributes>, Option<Arc<Attributes>>) {
        let is_name_covered =
            attributes.is_of_one_object() && self.inner.reviews.covers_names(caller);
        match attributes.more_general(is_name_covered) {
            Some(general) => (Arc::new(general), Some(Arc::new(attributes))),
            None => (Arc::new(attributes), None),
        }
    }

    /// Judges rights again after a change `at` some moment: the rights of the users for whom
    /// `is_concerned` returns true. `concern` returns how the change affects each right.
    pub(super) fn changed(
        &self,
        at: Instant,
        is_concerned: impl Fn(&User) -> bool,
        concern: impl Fn(&User, &Attributes) -> Concern,
    ) {
        // The users are selected without the lock, because each watch takes the lock when it opens
        // and ends.
        let (mut users, last) = self.inner.state.lock().register.users();
        users.retain(|user| is_concerned(&user.user));
        let mut concerned = Vec::new();
        for user in &users {
            let rights = self.inner.state.lock().register.rights_of(user);
            let concerns = rights
                .into_iter()
                .map(|(group, question)| (concern(&user.user, &question.attributes), group));
            concerned.extend(concerns.filter(|(concern, _)| *concern != Concern::None));
        }
        concerned.sort_unstable();
        for some in concerned.chunks(CHANGED_AT_ONCE) {
            self.with(|state| state.register.changed(at, some));
        }
        for user in &users {
            self.with(|state| state.register.changed_since(at, user, last));
        }
    }

    /// Asks at once about the tokens with these digests, because the API server has refused them.
    pub(super) fn token_refused(&self, tokens: &[Digest]) {
        self.with(|state| {
            for token in tokens {
                state.register.token_refused(token, Instant::now());
            }
        });
    }

    /// Asks again about the tokens that were issued for an object that was deleted `at` some
    /// moment.
    pub(super) fn deleted(&self, uid: &str, at: Instant) {
        self.with(|state| state.register.deleted(uid, at));
    }

    /// Asks again about all tokens that were issued for objects, because objects with unknown UIDs
    /// were deleted `at` some moment.
    pub(super) fn unknown_deleted(&self, at: Instant) {
        self.with(|state| state.register.unknown_deleted(at));
    }

    /// Ends the watches of users with certificates that `is_proven` rejects.
    pub(super) async fn recheck(&self, is_proven: impl Fn(&KnownCaller) -> bool) {
        let certified = self.inner.state.lock().register.certified();
        for some in certified.chunks(RECHECKED_AT_ONCE) {
            // This is decided without the lock, because it takes long.
            let lost = some.iter().filter(|(_, caller)| !is_proven(caller));
            let lost: Vec<MemberId> = lost.map(|(member, _)| *member).collect();
            self.revoke(&lost);
            tokio::task::yield_now().await;
        }
    }

    /// Ends these watches.
    pub(super) fn revoke(&self, members: &[MemberId]) {
        if members.is_empty() {
            return;
        }
        let ended = self.apply(|register, _| register.revoke(members));
        self.inner.metrics.ended.inc_by(ended as u64);
    }

    fn close(&self, member: MemberId) {
        self.inner.state.lock().register.close(member);
    }

    /// Changes the state, and wakes the task if there is something to do before the task's next
    /// look.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.inner.state.lock();
        let result = change(&mut state);
        let is_sooner = match (state.next(), state.next_look) {
            (Some(next), Some(look)) => next < look,
            (next, None) => next.is_some(),
            (None, Some(_)) => false,
        };
        drop(state);
        if is_sooner {
            self.inner.wake.notify_one();
        }
        result
    }

    /// Changes the register. Returns the number of watches that end.
    fn apply(&self, change: impl FnOnce(&mut Register, Instant) -> Vec<Ending>) -> usize {
        self.with(|state| {
            let now = Instant::now();
            let endings = change(&mut state.register, now);
            state.end(endings, now)
        })
    }

    /// Asks all questions when they are due. Runs until the future is dropped.
    async fn run(self) {
        let mut drain = pin!(self.inner.shutdown.reached(Phase::EndWatches));
        let mut is_draining = false;
        loop {
            let now = Instant::now();
            let work = self.inner.state.lock().work(now);
            self.inner.metrics.ended.inc_by(work.ended as u64);
            for ending in work.over {
                if ending.finish() {
                    self.inner.metrics.broken_off.inc();
                }
            }
            for inquiry in work.inquiries {
                let watches = self.clone();
                let asked = async move { watches.ask(inquiry).await };
                self.inner.shutdown.spawn_background(asked);
            }
            let wait = async {
                match work.next_look {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.inner.wake.notified() => {}
                () = &mut drain, if !is_draining => {
                    is_draining = true;
                    self.inner.state.lock().ends_held = true;
                }
            }
        }
    }

    async fn ask(self, inquiry: Inquiry) {
        let _place = QuestionInFlight {
            watches: &self,
            asker: inquiry.asker,
        };
        let Inner { reviews, .. } = &*self.inner;
        let (group, asked_at) = (inquiry.group, Instant::now());
        let (result, ended) = match inquiry.about {
            About::Right(caller, attributes, token) => {
                let judgement = reviews.judge(&caller, &attributes).await;
                if judgement == Judgement::Allowed {
                    self.confirm_names(group, &caller).await;
                }
                let ended = self
                    .apply(|register, now| register.judged(group, token, judgement, asked_at, now));
                (judgement.name(), ended)
            }
            About::Token(token) => {
                let check = reviews.check(&token).await;
                let result = check.name();
                let expires_in = token.expires_in(SystemTime::now());
                let ended = self.apply(|register, now| {
                    register.checked(group, check, expires_in, asked_at, now)
                });
                (result, ended)
            }
        };
        let metrics = &self.inner.metrics;
        metrics.questions.with_label_values(&[result]).inc();
        metrics.ended.inc_by(ended as u64);
    }

    /// Judges watches of single objects by their names from now on, if the right of their group to
    /// all names does not cover names any more. Without an answer they stay, because they would not
    /// come back.
    async fn confirm_names(&self, group: GroupId, caller: &Arc<KnownCaller>) {
        let has_names = || self.inner.state.lock().register.has_covered_names(group);
        if !has_names() || self.inner.reviews.confirm_names(caller).await != Some(false) {
            return;
        }
        let now = Instant::now();
        while has_names() {
            self.with(|state| state.register.names_uncovered(group, CHANGED_AT_ONCE, now));
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the limit of `rate` questions per second.
fn pace(rate: NonZeroU32) -> TokenBucket {
    let burst = rate.get().saturating_mul(BURST_SECONDS);
    TokenBucket::new(Duration::from_secs(1) / rate.get(), burst)
}

/// A question in flight, which counts until this value is dropped.
struct QuestionInFlight<'a> {
    watches: &'a OpenWatches,
    /// The user that the question is about.
    asker: Asker,
}

impl Drop for QuestionInFlight<'_> {
    fn drop(&mut self) {
        self.watches.with(|state| {
            state.in_flight -= 1;
            state.register.queue.release(self.asker);
        });
    }
}

impl State {
    fn work(&mut self, now: Instant) -> Work {
        let mut ended = self.register.expire(now);
        self.register.find_due(now);
        if self.ends_held {
            ended.extend(self.register.end_held());
        }
        let ended = self.end(ended, now);
        let mut over = Vec::new();
        while self.endings.front().is_some_and(|(at, _)| *at <= now) {
            over.extend(self.endings.pop_front().map(|(_, ending)| ending));
        }
        let mut inquiries = Vec::new();
        while self.in_flight < CONCURRENT && self.pace.debt(now).is_zero() {
            let Some(inquiry) = self.register.take(now) else {
                break;
            };
            self.pace.take(now);
            self.in_flight += 1;
            inquiries.push(inquiry);
        }
        self.next_look = self.next().map(|next| next.max(now));
        Work {
            inquiries,
            ended,
            over,
            next_look: self.next_look,
        }
    }

    /// Returns when something must next be done; `None` if nothing is planned.
    fn next(&mut self) -> Option<Instant> {
        let ending = self.endings.front().map(|(at, _)| *at);
        let due = self.in_flight < CONCURRENT && self.register.queue.has_due();
        let now = Instant::now();
        let due = due.then(|| now + self.pace.debt(now));
        let waiting = self.register.queue.next_waiting();
        let expiry = self.register.next_expiry();
        [ending, due, waiting, expiry].into_iter().flatten().min()
    }

    /// Remembers watches that were ended at `now`. Returns their number.
    fn end(&mut self, endings: Vec<Ending>, now: Instant) -> usize {
        let count = endings.len();
        let over = now + END_PATIENCE;
        self.endings
            .extend(endings.into_iter().map(|ending| (over, ending)));
        count
    }
}

/// Returns when the certificate of `credential` expires; `None` without a certificate, or if the
/// time is too far in the future to represent.
fn expires_at(credential: &Credential) -> Option<Instant> {
    let Credential::Certificate(proof) = credential else {
        return None;
    };
    let left = proof
        .expiry
        .as_ref()?
        .at()?
        .duration_since(SystemTime::now());
    Instant::now().checked_add(left.unwrap_or_default())
}
