//! Whether a user may read something. The API server decides; decisions are remembered for seconds.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use tokio::time::Instant;

use super::question::Question;
use crate::identity::asking::answers::{Answer, Answers};
use crate::identity::asking::failed_attempts::FailedAttempts;
use crate::identity::asking::queue::{AskQueue, QueueMetrics};
use crate::identity::asking::reviews::{Judgement, Reviewer};
use crate::identity::callers::caller::{Credential, KnownCaller};
use crate::identity::rbac::RecentChanges;
use crate::identity::tokens::authenticator::{Authenticator, Owner};
use crate::identity::tokens::token::Digest;
use crate::identity::{Attributes, Config};

/// The number of decisions that are remembered.
const DECISIONS: usize = 100_000;
/// The group of node agents. The node authorizer's decisions change with every pod that is bound to
/// a node, so a denial is not remembered.
const NODES: &str = "system:nodes";

/// Whether kubefan may answer a read itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The API server lets the caller read this.
    Allowed,
    /// It did when it was last asked, longer ago than decisions are remembered; now it does not
    /// answer.
    Stale,
    /// It does not, or it has not said so. The request is forwarded, so that it answers itself.
    NotAllowed,
    /// The API server was not asked, because too many questions wait. The client has to try again:
    /// if all these requests were forwarded, the API server would have even more to do.
    Busy,
}

/// What follows a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denial {
    /// A question about less may get a yes.
    IsAskedAgain,
    /// The request is forwarded.
    IsFinal,
}

/// Asks the API server whether callers may read something, and remembers its decisions.
pub(in crate::identity) struct Authorizer {
    reviewer: Arc<Reviewer>,
    /// Learns which tokens the API server accepts.
    authenticator: Arc<Authenticator>,
    decisions: Answers<Question, Judgement>,
    /// Users take turns, so that one with many questions does not delay the others.
    queue: AskQueue<Digest>,
    /// Denials of users. About one with too many, nothing is asked: its requests are forwarded anyway,
    /// and each question would come on top.
    denied: FailedAttempts<Digest>,
    /// True to ask with kubefan's rights also for callers with a token.
    delegated: bool,
    /// True if a yes without a name covers all names.
    names_covered: bool,
    decision_bytes: usize,
    allowed_for: Duration,
    denied_for: Duration,
    /// How long a yes counts while the API server does not answer.
    stale_for: Duration,
    /// Decisions must be later than these changes of roles.
    recent: Arc<RecentChanges>,
}

impl Question {
    /// Bytes that are kept for the question and its answer, which holds nothing outside of itself.
    fn weight(&self) -> usize {
        let attributes = size_of::<Attributes>() + 2 * size_of::<usize>();
        Answers::<Self, Judgement>::ENTRY_BYTES + attributes + self.attributes.weight()
    }
}

impl Authorizer {
    pub(in crate::identity) fn new(
        reviewer: Arc<Reviewer>,
        authenticator: Arc<Authenticator>,
        config: &Config,
        queue_metrics: QueueMetrics,
        recent: Arc<RecentChanges>,
        shutdown: Shutdown,
    ) -> Self {
        let stale_for = config.stale;
        let useful_for = move |judgement: &_| match judgement {
            Judgement::Allowed => stale_for,
            _ => Duration::ZERO,
        };
        Self {
            reviewer,
            authenticator,
            decisions: Answers::new(DECISIONS, shutdown)
                .useful_for(useful_for)
                .weighed(config.decision_bytes, (Question::weight, |_| 0)),
            queue: config.queue(queue_metrics),
            denied: FailedAttempts::new(config.max_failed_per_second),
            delegated: config.is_delegated(),
            names_covered: config.names_covered,
            decision_bytes: config.decision_bytes,
            allowed_for: config.allowed_ttl,
            denied_for: config.denied_ttl,
            stale_for,
            recent,
        }
    }

    /// The bytes of the remembered decisions, and their upper limit.
    pub(in crate::identity) fn decision_bytes(&self) -> (usize, usize) {
        (self.decisions.weight(), self.decision_bytes)
    }

    /// Whether `caller` may read what `attributes` describe.
    ///
    /// The first question has no selectors: selectors can only narrow what is read, so a yes covers
    /// all of them. After a no the question is asked with them, because node agents may read only
    /// what belongs to their node. The same applies to names, if the operator says so.
    ///
    /// Nothing is asked about names that are longer than any name can be.
    pub(in crate::identity) async fn may_read(
        self: &Arc<Self>,
        caller: &Arc<KnownCaller>,
        attributes: &Attributes,
    ) -> Verdict {
        if attributes.has_long_names() {
            return Verdict::NotAllowed;
        }
        let general = match attributes.more_general(self.names_covered) {
            Some(general) => self.judge(caller, general, Denial::IsAskedAgain).await,
            None => Judgement::Denied,
        };
        let judgement = match general {
            Judgement::Denied => {
                let attributes = attributes.clone();
                self.judge(caller, attributes, Denial::IsFinal).await
            }
            general => general,
        };
        match judgement {
            Judgement::NoAnswer if self.was_allowed(caller, attributes) => Verdict::Stale,
            judgement => Verdict::of(judgement),
        }
    }

    /// True if the last decision on this read was a yes that may count if the API server does not
    /// answer: it is not too old, and the user's roles have not changed since, as far as kubefan
    /// knows.
    pub(in crate::identity) fn was_allowed(
        &self,
        caller: &KnownCaller,
        attributes: &Attributes,
    ) -> bool {
        let changed = |_: &_| self.recent.settled(caller.user(), &attributes.namespace);
        let general = attributes.more_general(self.names_covered);
        let questions = [attributes.without_selectors(), attributes.clone()];
        questions.into_iter().chain(general).any(|attributes| {
            let question = Question::new(caller, attributes);
            let last = self
                .decisions
                .last_within(&question, self.stale_for, changed);
            last == Some(Judgement::Allowed)
        })
    }

    /// The remembered decision, if there is one. It asks nothing.
    pub(in crate::identity) fn known(
        &self,
        caller: &KnownCaller,
        attributes: &Attributes,
    ) -> Option<Verdict> {
        let since = Instant::now();
        let decision = |attributes: Attributes| {
            let question = Question::new(caller, attributes);
            let earliest =
                |judgement: &_| self.earliest(*judgement, caller, &question.attributes, since);
            self.decisions.known(&question, earliest)
        };
        let is_allowed = |judgement: &Judgement| *judgement == Judgement::Allowed;
        let general = self.without_covered_name(attributes).and_then(decision);
        let known = general.filter(is_allowed);
        let known = known.or_else(|| decision(attributes.without_selectors()));
        known.map(Verdict::of)
    }

    /// True if the API server lets `caller` read this and all other objects of the resource, and that
    /// covers the one that `attributes` name. Asks it, unless it answered a short time ago. A no is
    /// not remembered for nodes, so it would be asked each time; they have no such rights.
    pub(in crate::identity) async fn may_read_all_names(
        self: &Arc<Self>,
        caller: &Arc<KnownCaller>,
        attributes: &Attributes,
    ) -> bool {
        if attributes.has_long_names() || self.denied_for(caller).is_zero() {
            return false;
        }
        match self.without_covered_name(attributes) {
            Some(general) => {
                let judged = self.judge(caller, general, Denial::IsAskedAgain);
                judged.await == Judgement::Allowed
            }
            None => false,
        }
    }

    /// The attributes of all names, if a yes for them covers the name in `attributes`.
    fn without_covered_name(&self, attributes: &Attributes) -> Option<Attributes> {
        let has_name = self.names_covered && !attributes.name.is_empty();
        has_name.then(|| attributes.more_general(true)).flatten()
    }

    /// Remembers that the API server has answered a read of `caller` that it received after
    /// `asked_at`, and so has authorized it.
    pub(in crate::identity) fn learn(
        &self,
        caller: &KnownCaller,
        attributes: &Attributes,
        asked_at: Instant,
    ) {
        let question = Question::new(caller, attributes.without_selectors());
        self.remember(&question, Judgement::Allowed, asked_at, self.allowed_for);
    }

    fn remember(
        &self,
        question: &Question,
        judgement: Judgement,
        asked_at: Instant,
        validity: Duration,
    ) {
        if question.attributes.may_be_kept() {
            self.decisions
                .learn(question, judgement, asked_at, validity);
        }
    }

    /// Remembers for an outage whether the API server has let `caller` read `path`, which names no
    /// resource. Does nothing if decisions do not count in an outage.
    pub(in crate::identity) fn learn_path(
        &self,
        caller: &KnownCaller,
        path: &str,
        judgement: Judgement,
        asked_at: Instant,
    ) {
        if !self.stale_for.is_zero() {
            let question = Question::new(caller, Attributes::of_path(path));
            self.remember(&question, judgement, asked_at, Duration::ZERO);
        }
    }

    /// Forgets the remembered denials of this read.
    pub(in crate::identity) fn not_denied(&self, caller: &KnownCaller, attributes: &Attributes) {
        for attributes in [attributes.without_selectors(), attributes.clone()] {
            let question = Question::new(caller, attributes);
            self.decisions
                .forget(&question, |judgement| *judgement == Judgement::Denied);
        }
    }

    async fn judge(
        self: &Arc<Self>,
        caller: &Arc<KnownCaller>,
        attributes: Attributes,
        denial: Denial,
    ) -> Judgement {
        let question = Question::new(caller, attributes);
        let since = Instant::now();
        let earliest =
            |judgement: &_| self.earliest(*judgement, caller, &question.attributes, since);
        let ask = || {
            let (authorizer, caller) = (Arc::clone(self), Arc::clone(caller));
            let attributes = Arc::clone(&question.attributes);
            async move {
                let user = caller.user.name;
                if authorizer.denied.is_exhausted(user) {
                    return Answer::OfAsker(Judgement::Unclear);
                }
                let Ok(_permit) = authorizer.queue.admit(user).await else {
                    return Answer::OfAsker(Judgement::Busy);
                };
                let judgement = authorizer.ask(&caller, &attributes).await;
                match judgement {
                    Judgement::Allowed => Answer::Definite(judgement, authorizer.allowed_for),
                    Judgement::Denied => {
                        if denial == Denial::IsFinal {
                            authorizer.denied.count(user);
                        }
                        let denied_for = authorizer.denied_for(&caller);
                        Answer::Definite(judgement, denied_for)
                    }
                    Judgement::Refused
                    | Judgement::Unclear
                    | Judgement::NoAnswer
                    | Judgement::Busy => Answer::OfAsker(judgement),
                }
            }
        };
        if !question.attributes.may_be_kept() {
            return match ask().await {
                Answer::Definite(judgement, _) | Answer::OfAsker(judgement) => judgement,
            };
        }
        let judgement = self.decisions.get(&question, earliest, ask).await;
        judgement.unwrap_or(Judgement::Unclear)
    }

    /// The moment before which a decision for a request of `since` must not have been asked for: its
    /// user's roles have changed since, or a short time ago, and the API server may have judged by
    /// the old ones.
    fn earliest(
        &self,
        judgement: Judgement,
        caller: &KnownCaller,
        attributes: &Attributes,
        since: Instant,
    ) -> Option<Instant> {
        match judgement {
            Judgement::Allowed | Judgement::Denied => {
                let namespace = &attributes.namespace;
                self.recent.earliest(caller.user(), namespace, since)
            }
            Judgement::Refused | Judgement::Unclear | Judgement::NoAnswer | Judgement::Busy => None,
        }
    }

    /// Asks the API server, whatever is remembered, and remembers a definite answer.
    pub(in crate::identity) async fn judge_again(
        &self,
        caller: &KnownCaller,
        attributes: Arc<Attributes>,
    ) -> Judgement {
        let asked_at = Instant::now();
        let judgement = self.ask(caller, &attributes).await;
        let validity = match judgement {
            Judgement::Allowed => self.allowed_for,
            Judgement::Denied => self.denied_for(caller),
            Judgement::Refused | Judgement::Unclear | Judgement::NoAnswer | Judgement::Busy => {
                return judgement;
            }
        };
        let question = Question::new(caller, attributes);
        self.remember(&question, judgement, asked_at, validity);
        judgement
    }

    /// Asks the API server, whatever is remembered.
    async fn ask(&self, caller: &KnownCaller, attributes: &Attributes) -> Judgement {
        match &caller.credential {
            Credential::Token(token) if !self.delegated => {
                let asked_at = Instant::now();
                let judgement = self.reviewer.self_access(token, attributes).await;
                if matches!(judgement, Judgement::Allowed | Judgement::Denied) {
                    self.authenticator.accepted(token, asked_at);
                }
                judgement
            }
            Credential::Token(_) | Credential::Certificate(_) | Credential::None => {
                self.reviewer.access(caller.user(), attributes).await
            }
        }
    }

    /// `verdict` about a read of `caller`, if a yes may be shared with the other tokens of its user. If
    /// decisions are asked for with tokens, each shows that this one is good. So the caller's must
    /// have been accepted within the time for which a yes counts.
    pub(in crate::identity) async fn proven(
        &self,
        caller: &KnownCaller,
        verdict: Verdict,
    ) -> Verdict {
        let (Credential::Token(token), Verdict::Allowed) = (&caller.credential, verdict) else {
            return verdict;
        };
        if self.delegated {
            return verdict;
        }
        let turn = (&self.queue, caller.user.name);
        let owner = self
            .authenticator
            .owner_within(token, self.allowed_for, turn);
        match owner.await {
            Owner::User(user) if user.digest == caller.user.digest => verdict,
            Owner::Stale(_) => Verdict::Stale,
            Owner::Busy => Verdict::Busy,
            _ => Verdict::NotAllowed,
        }
    }

    /// How long a denial is remembered.
    pub(in crate::identity) fn denied_for(&self, caller: &KnownCaller) -> Duration {
        let mut groups = caller.user().groups.iter();
        match groups.any(|group| group == NODES) {
            true => Duration::ZERO,
            false => self.denied_for,
        }
    }
}

impl Verdict {
    fn of(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Allowed => Self::Allowed,
            Judgement::Denied | Judgement::Refused | Judgement::Unclear | Judgement::NoAnswer => {
                Self::NotAllowed
            }
            Judgement::Busy => Self::Busy,
        }
    }
}

#[cfg(test)]
mod tests;
