//! Whether a user may read something. The API server decides; decisions are remembered for seconds.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::shutdown::Shutdown;
use tokio::time::Instant;

use super::covered_names::CoveredNames;
use super::question::Question;
use crate::identity::asking::answers::Answers;
use crate::identity::asking::failed_attempts::FailedAttempts;
use crate::identity::asking::queue::{AskQueue, QueueMetrics};
use crate::identity::asking::reviews::{Judgement, Reviewer};
use crate::identity::callers::caller::{Credential, KnownCaller};
use crate::identity::rbac::RecentChanges;
use crate::identity::tokens::authenticator::{Authenticator, Owner};
use crate::identity::tokens::token::Digest;
use crate::identity::{Attributes, Config, Mode};

/// The number of remembered decisions.
const DECISIONS: usize = 100_000;

/// Whether kubefan may answer a read itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The API server lets the caller read this.
    Allowed,
    /// The API server does not answer now. It last allowed this longer ago than decisions are
    /// remembered.
    Stale,
    /// The API server does not let the caller read this, or has given no clear answer. The request
    /// is forwarded, so that the API server itself answers it.
    NotAllowed,
    /// kubefan did not ask the API server, because too many questions wait. The client must try
    /// again: if all these requests were forwarded, the API server would have even more to do.
    Busy,
}

/// What happens after a no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denial {
    /// A narrower question may get a yes.
    IsAskedAgain,
    /// The request is forwarded.
    IsFinal,
}

/// Asks the API server whether callers may read something, and remembers its decisions.
pub(in crate::identity) struct Authorizer {
    reviewer: Arc<Reviewer>,
    /// Learns which tokens the API server accepts.
    pub(in crate::identity) authenticator: Arc<Authenticator>,
    decisions: Answers<Question, Judgement>,
    /// Whether a right to all names covers each name.
    pub(in crate::identity) names: CoveredNames,
    /// Users take turns, so that a user with many questions does not delay the others.
    queue: AskQueue<Digest>,
    /// Denials of users. If a user has too many denials, kubefan asks no questions about it: the
    /// user's requests are forwarded anyway, and each question would be an additional request.
    denied: FailedAttempts<Digest>,
    config: Config,
    /// Recent changes of roles. A decision counts only if it was asked for after these changes.
    recent: Arc<RecentChanges>,
}

impl Question {
    /// Returns the bytes that are stored for the question and its answer. The answer holds nothing
    /// outside of itself.
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
            names: CoveredNames::new(config, Arc::clone(&reviewer), shutdown.clone()),
            reviewer,
            authenticator,
            decisions: Answers::new(
                DECISIONS,
                (config.decision_bytes, (Question::weight, |_| 0)),
                useful_for,
                shutdown,
            ),
            queue: config.queue(queue_metrics),
            denied: FailedAttempts::new(config.max_failed_per_second),
            config: config.clone(),
            recent,
        }
    }

    /// Returns the bytes of the remembered decisions, and their upper limit.
    pub(in crate::identity) fn decision_bytes(&self) -> (usize, usize) {
        (self.decisions.weight(), self.config.decision_bytes)
    }

    /// Returns whether `caller` may read what `attributes` describe.
    ///
    /// The first question has no selectors. Selectors can only narrow a read, so a yes covers all
    /// selectors. After a no, the question is asked with the selectors, because node agents may
    /// read only what belongs to their node. If a right to all names covers each name, the first
    /// question is about all names.
    ///
    /// Asks nothing about names that are longer than any name can be.
    pub(in crate::identity) async fn may_read(
        self: &Arc<Self>,
        caller: &Arc<KnownCaller>,
        attributes: &Attributes,
    ) -> Verdict {
        if attributes.has_long_names() {
            return Verdict::NotAllowed;
        }
        let is_name_covered = self.is_name_covered(caller, attributes);
        let general = match attributes.more_general(is_name_covered) {
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

    /// Returns true if the last decision on this read was a yes that may count if the API server
    /// does not answer. Conditions: the decision is not too old, and kubefan has seen no change of
    /// the user's roles since.
    pub(in crate::identity) fn was_allowed(
        &self,
        caller: &KnownCaller,
        attributes: &Attributes,
    ) -> bool {
        let changed = |_: &_| self.recent.settled(caller.user(), &attributes.namespace);
        let stale = self.config.stale;
        let general = attributes.more_general(self.names.covered_within(caller.user(), stale));
        let questions = [attributes.without_selectors(), attributes.clone()];
        questions.into_iter().chain(general).any(|attributes| {
            let question = Question::new(caller, attributes);
            let last = self.decisions.last_within(&question, stale, changed);
            last == Some(Judgement::Allowed)
        })
    }

    /// Returns the remembered decision, if there is one, without asking the API server.
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
        let general = self.of_all_names(caller, attributes).and_then(decision);
        let known = general.filter(is_allowed);
        let known = known.or_else(|| decision(attributes.without_selectors()));
        known.map(Verdict::of)
    }

    /// Returns true if the API server lets `caller` read all objects of the resource, and this
    /// covers the object that `attributes` name. Asks the API server unless it answered a short
    /// time ago. Returns false for nodes: they have no such rights, and because their denials are
    /// not remembered, each call would ask.
    pub(in crate::identity) async fn may_read_all_names(
        self: &Arc<Self>,
        caller: &Arc<KnownCaller>,
        attributes: &Attributes,
    ) -> bool {
        if attributes.has_long_names() || self.denied_for(caller).is_zero() {
            return false;
        }
        match self.of_all_names(caller, attributes) {
            Some(general) => {
                let judged = self.judge(caller, general, Denial::IsAskedAgain);
                judged.await == Judgement::Allowed
            }
            None => false,
        }
    }

    /// Returns the attributes of all names, if a yes for them covers the name in `attributes`.
    fn of_all_names(&self, caller: &KnownCaller, attributes: &Attributes) -> Option<Attributes> {
        let is_name_covered = self.is_name_covered(caller, attributes);
        let of_all = is_name_covered.then(|| attributes.more_general(true));
        of_all.flatten()
    }

    /// Returns true if the attributes have a name, and a yes for all names covers it.
    fn is_name_covered(&self, caller: &KnownCaller, attributes: &Attributes) -> bool {
        attributes.is_of_one_object() && self.names.cover(caller.user())
    }

    /// Remembers that the API server has authorized a read of `caller`, because it has answered the
    /// read, which it received after `asked_at`.
    pub(in crate::identity) fn learn(
        &self,
        caller: &KnownCaller,
        attributes: &Attributes,
        asked_at: Instant,
    ) {
        let question = Question::new(caller, attributes.without_selectors());
        let validity = self.config.allowed_ttl;
        self.remember(&question, Judgement::Allowed, asked_at, validity);
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
        if !self.config.stale.is_zero() {
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
                    return (Judgement::Unclear, None);
                }
                let Ok(_permit) = authorizer.queue.admit(user).await else {
                    return (Judgement::Busy, None);
                };
                let judgement = authorizer.ask(&caller, &attributes).await;
                if judgement == Judgement::Denied && denial == Denial::IsFinal {
                    authorizer.denied.count(user);
                }
                (judgement, authorizer.validity(judgement, &caller))
            }
        };
        if !question.attributes.may_be_kept() {
            let (judgement, _) = ask().await;
            return judgement;
        }
        let judgement = self.decisions.get(&question, earliest, ask).await;
        judgement.unwrap_or(Judgement::Unclear)
    }

    /// Returns the moment before which a decision must not have been asked for, for a request of
    /// `since`. There is one if the user's roles have changed since, or so shortly before that the
    /// API server may have judged by the old roles.
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

    /// Asks the API server even if a decision is remembered, and remembers a definite answer.
    pub(in crate::identity) async fn judge_again(
        &self,
        caller: &KnownCaller,
        attributes: Arc<Attributes>,
    ) -> Judgement {
        let asked_at = Instant::now();
        let judgement = self.ask(caller, &attributes).await;
        if let Some(validity) = self.validity(judgement, caller) {
            let question = Question::new(caller, attributes);
            self.remember(&question, judgement, asked_at, validity);
        }
        judgement
    }

    /// Returns how long a judgement about `caller` is remembered; `None` if it is not definite.
    fn validity(&self, judgement: Judgement, caller: &KnownCaller) -> Option<Duration> {
        match judgement {
            Judgement::Allowed => Some(self.config.allowed_ttl),
            Judgement::Denied => Some(self.denied_for(caller)),
            Judgement::Refused | Judgement::Unclear | Judgement::NoAnswer | Judgement::Busy => None,
        }
    }

    /// Asks the API server even if a decision is remembered.
    async fn ask(&self, caller: &KnownCaller, attributes: &Attributes) -> Judgement {
        match &caller.credential {
            Credential::Token(token) if self.config.mode != Mode::Delegated => {
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

    /// Returns `verdict` about a read of `caller`, if a yes may be shared with the other tokens of
    /// its user. If decisions are asked for with tokens, each decision shows that its token is
    /// good. So the API server must have accepted the caller's token within the time for which a
    /// yes counts.
    pub(in crate::identity) async fn proven(
        &self,
        caller: &KnownCaller,
        verdict: Verdict,
    ) -> Verdict {
        let (Credential::Token(token), Verdict::Allowed) = (&caller.credential, verdict) else {
            return verdict;
        };
        if self.config.mode == Mode::Delegated {
            return verdict;
        }
        let turn = (&self.queue, caller.user.name);
        let owner = self
            .authenticator
            .owner_within(token, self.config.allowed_ttl, turn);
        match owner.await {
            Owner::User(user) if user.digest == caller.user.digest => verdict,
            Owner::Stale(_) => Verdict::Stale,
            Owner::Busy => Verdict::Busy,
            _ => Verdict::NotAllowed,
        }
    }

    /// Returns how long a denial of `caller` is remembered. That of a node is not remembered,
    /// because it changes with every pod that is bound to the node.
    pub(in crate::identity) fn denied_for(&self, caller: &KnownCaller) -> Duration {
        if caller.user().is_node() {
            Duration::ZERO
        } else {
            self.config.denied_ttl
        }
    }
}

impl Verdict {
    fn of(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Allowed => Self::Allowed,
            Judgement::Busy => Self::Busy,
            _ => Self::NotAllowed,
        }
    }
}

#[cfg(test)]
mod tests;
