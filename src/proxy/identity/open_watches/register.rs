//! The open watches, by the questions that decide about them. The register decides without I/O;
//! `mod.rs` asks the questions.
//!
//! ```text
//! group       one question, and its state
//! membership  which questions decide about a watch
//! answers     what answers and changes do to the watches
//! ```

mod answers;
mod group;
mod membership;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(in crate::identity) use group::Concern;
pub(super) use group::{About, Inquiry};
use group::{Group, Subject};
use rand::Rng;
use tokio::time::Instant;

use super::open_watch::{End, Ending};
use super::queue::Queue;
use super::{Config, GroupId, MOST_IN_FLIGHT, MemberId};
use crate::identity::Attributes;
use crate::identity::callers::caller::{Credential, KnownCaller, KnownUser};
use crate::identity::rbac::RecentChanges;
use crate::identity::rights::question::Question;
use crate::identity::tokens::deleted_objects::DeletedObjects;
use crate::identity::tokens::token::Digest;
use crate::net::Abort;

/// The time between two questions about a token after its `exp`. The API server still accepts the
/// token for a short time after its `exp`.
const AFTER_EXPIRY: Duration = Duration::from_secs(10);
/// Intervals are shortened by up to this share, so that questions spread over time.
const JITTER: f64 = 0.2;
/// How many members of a group are searched for one with a token that was not refused.
const SEARCHED: usize = 16;

/// The registers of recent changes.
#[derive(Clone)]
pub(in crate::identity) struct Recent {
    pub(in crate::identity) roles: Arc<RecentChanges>,
    pub(in crate::identity) deleted: Arc<DeletedObjects>,
}

/// The open watches and the questions about them.
pub(super) struct Register {
    config: Config,
    recent: Recent,
    members: HashMap<MemberId, Member>,
    groups: HashMap<GroupId, Group>,
    rights: HashMap<Arc<Question>, GroupId>,
    tokens: HashMap<Digest, GroupId>,
    /// The questions about tokens, by the UIDs of the objects that the tokens were issued for.
    by_uid: HashMap<String, BTreeSet<GroupId>>,
    /// The users with open watches, and the questions about their rights.
    users: HashMap<Digest, UserQuestions>,
    /// The watches with client certificates that expire, in the order of time.
    expiries: BTreeSet<(Instant, MemberId)>,
    pub(super) queue: Queue,
    /// The questions with watches that get no events.
    held: BTreeSet<GroupId>,
    last_id: u64,
}

/// An open watch.
pub(super) struct Member {
    pub(super) caller: Arc<KnownCaller>,
    pub(super) right: Option<GroupId>,
    pub(super) token: Option<GroupId>,
    /// The attributes to ask about if the user may not read all objects that `right` asks about:
    /// with the selectors of the watch, and with its name if it has one.
    pub(super) narrower: Option<Arc<Attributes>>,
    pub(super) opened_at: Instant,
    /// When the caller's certificate expires, if it has one.
    pub(super) expires_at: Option<Instant>,
    pub(super) end: Arc<End>,
    pub(super) abort: Option<Abort>,
}

struct UserQuestions {
    user: Arc<KnownUser>,
    groups: BTreeSet<GroupId>,
}

impl Register {
    pub(super) fn new(config: Config, recent: Recent) -> Self {
        Self {
            config,
            recent,
            members: HashMap::new(),
            groups: HashMap::new(),
            rights: HashMap::new(),
            tokens: HashMap::new(),
            by_uid: HashMap::new(),
            users: HashMap::new(),
            expiries: BTreeSet::new(),
            queue: Queue::new(MOST_IN_FLIGHT),
            held: BTreeSet::new(),
            last_id: 0,
        }
    }

    /// Adds a watch that was allowed just now. `member` has no groups yet. `token` is the digest of
    /// the caller's token, if it has one. `attributes` are those of the question about the watch's
    /// right; `None` if only the caller's token is judged. Its questions are asked again after
    /// recent changes, like those of watches that were open before the changes.
    pub(super) fn open(
        &mut self,
        mut member: Member,
        token: Option<Digest>,
        attributes: Option<Arc<Attributes>>,
        now: Instant,
    ) -> MemberId {
        let id = MemberId(self.next_id());
        let caller = Arc::clone(&member.caller);
        // When an object of the token was last deleted, and when one with an unknown UID was. The
        // answer that allowed the watch may be from before these deletions, or before `changed`.
        let (known, unknown) = self.recent.deleted.unsettled(caller.user());
        if let Some(attributes) = attributes {
            let roles = &self.recent.roles;
            let changed = roles.last(caller.user(), &attributes.namespace);
            let right = self.join_right(id, &caller, attributes, member.narrower.as_deref(), now);
            if let Some(at) = changed {
                self.ask_after(right, at, false);
            }
            member.right = Some(right);
        }
        if let (Credential::Token(token), Some(digest)) = (&caller.credential, token) {
            let token = self.join_token(id, digest, token, &caller.user, now);
            if let Some(at) = known.max(unknown) {
                self.ask_after(token, at, known.is_some());
                self.suspect(token, known.is_some());
            }
            member.token = Some(token);
        }
        member.opened_at = now;
        self.expiries.extend(member.expires_at.map(|at| (at, id)));
        self.members.insert(id, member);
        self.update_hold(id);
        id
    }

    /// Removes a watch that has ended.
    pub(super) fn close(&mut self, id: MemberId) {
        if let Some(member) = self.members.remove(&id) {
            if let Some(at) = member.expires_at {
                self.expiries.remove(&(at, id));
            }
            for group in [member.right, member.token].into_iter().flatten() {
                self.leave(group, id);
            }
        }
    }

    /// Takes the question that is next in the queue.
    pub(super) fn take(&mut self, now: Instant) -> Option<Inquiry> {
        let (id, asker) = self.queue.take(now)?;
        let group = self.groups.get_mut(&id)?;
        group.is_asked = true;
        let group = &self.groups[&id];
        let about = match &group.subject {
            Subject::Token(_, token, _) => About::Token(token.clone()),
            Subject::Right(question) => {
                let (caller, token) = match self.asker(group)? {
                    (caller, _) if group.schedule.is_kubefans_turn() => {
                        let user = Arc::clone(&caller.user);
                        (Arc::new(KnownCaller::new(user, Credential::None)), None)
                    }
                    asker => asker,
                };
                About::Right(caller, Arc::clone(&question.attributes), token)
            }
        };
        Some(Inquiry {
            group: id,
            asker,
            about,
        })
    }

    /// Ends the watches with client certificates that have expired.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Ending> {
        let mut endings = Vec::new();
        while let Some((_, id)) = self.expiries.first().filter(|(at, _)| *at <= now).copied() {
            endings.extend(self.end(id));
        }
        endings
    }

    /// Returns the watches of users with certificates.
    pub(super) fn certified(&self) -> Vec<(MemberId, Arc<KnownCaller>)> {
        let members = self.members.iter();
        let certified = members.filter(|(_, member)| member.caller.is_impersonated());
        certified
            .map(|(id, member)| (*id, Arc::clone(&member.caller)))
            .collect()
    }

    /// Ends those of the watches `members` that are still open.
    pub(super) fn revoke(&mut self, members: &[MemberId]) -> Vec<Ending> {
        let members = members.iter();
        members.filter_map(|id| self.end(*id)).collect()
    }

    /// Returns when the next client certificate expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Returns the number of open watches.
    pub(super) fn watches(&self) -> usize {
        self.members.len()
    }

    /// Returns the number of questions about rights, and about tokens.
    pub(super) fn questions(&self) -> (usize, usize) {
        (self.rights.len(), self.tokens.len())
    }

    /// Returns the users with open watches, and the highest identifier of a group so far.
    pub(super) fn users(&self) -> (Vec<Arc<KnownUser>>, GroupId) {
        let users = self.users.values();
        let users = users.map(|questions| Arc::clone(&questions.user));
        (users.collect(), GroupId(self.last_id))
    }

    /// Returns the questions about the rights of `user`.
    pub(super) fn rights_of(&self, user: &KnownUser) -> Vec<(GroupId, Arc<Question>)> {
        let questions = self.users.get(&user.digest);
        let groups = questions.into_iter().flat_map(|of| &of.groups);
        let right = |id: &GroupId| match &self.groups.get(id)?.subject {
            Subject::Right(question) => Some((*id, Arc::clone(question))),
            Subject::Token(..) => None,
        };
        groups.filter_map(right).collect()
    }

    /// Returns the longest time for which a question about a right has had no new clear answer.
    pub(super) fn oldest_judgement(&self, now: Instant) -> Duration {
        let rights = self.rights.values().filter_map(|id| self.groups.get(id));
        let ages = rights.map(|group| now.saturating_duration_since(group.judged_at));
        ages.max().unwrap_or_default()
    }

    /// Finds the questions that are due. If a right is probably lost, the watches with this right
    /// get no more events until its question has an answer.
    pub(super) fn find_due(&mut self, now: Instant) {
        for id in self.queue.find_due(now) {
            let group = self.groups.get(&id);
            if group.is_some_and(|group| group.is_suspect && group.schedule.is_changing()) {
                self.hold(id, true);
            }
        }
    }

    /// Ends the watches that get no events.
    pub(super) fn end_held(&mut self) -> Vec<Ending> {
        let held = std::mem::take(&mut self.held).into_iter();
        let members: Vec<MemberId> = held.flat_map(|id| self.members_of(id)).collect();
        self.revoke(&members)
    }

    /// Returns the number of watches that get no events.
    pub(super) fn held(&self) -> usize {
        let held = self.members.values();
        held.filter(|member| member.end.is_held()).count()
    }

    /// Remembers that a right is probably lost if `is_suspect`.
    fn suspect(&mut self, id: GroupId, is_suspect: bool) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.is_suspect |= is_suspect;
        }
    }

    /// Begins or ends holding back the events of a group's watches.
    fn hold(&mut self, id: GroupId, is_held: bool) {
        match self.groups.get_mut(&id) {
            Some(group) if group.is_held != is_held => group.is_held = is_held,
            _ => return,
        }
        if is_held {
            self.held.insert(id)
        } else {
            self.held.remove(&id)
        };
        for member in self.members_of(id) {
            self.update_hold(member);
        }
    }

    /// Holds back the events of a watch if one of its questions requires it, and releases them
    /// otherwise.
    fn update_hold(&self, id: MemberId) {
        if let Some(member) = self.members.get(&id) {
            let groups = [member.right, member.token].into_iter().flatten();
            let mut groups = groups.filter_map(|group| self.groups.get(&group));
            member.end.hold(groups.any(|group| group.is_held));
        }
    }

    fn members_of(&self, id: GroupId) -> Vec<MemberId> {
        let group = self.groups.get(&id);
        group.map_or_else(Vec::new, |group| group.members.iter().copied().collect())
    }

    fn end(&mut self, id: MemberId) -> Option<Ending> {
        let member = self.members.get_mut(&id)?;
        let (end, abort) = (Arc::clone(&member.end), member.abort.take());
        self.close(id);
        Some(end.end(abort))
    }

    /// Schedules the question of a group several times after a change `at` some moment.
    fn ask_after(&mut self, id: GroupId, at: Instant, is_loss_likely: bool) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.schedule.changed(at, is_loss_likely);
        }
        self.enqueue(id);
    }

    /// Puts a group into the queue, unless its question is being asked.
    fn enqueue(&mut self, id: GroupId) {
        if let Some(group) = self.groups.get(&id)
            && !group.is_asked
        {
            let next = group.schedule.next();
            self.queue.set(id, group.asker, group.is_narrow(), next);
        }
    }

    /// Returns the caller that a question about a right is asked for, with its credentials: a
    /// caller with a token that was not refused, if there is one.
    fn asker(&self, group: &Group) -> Option<(Arc<KnownCaller>, Option<GroupId>)> {
        let is_good = |member: &&Member| {
            let token = member.token.and_then(|token| self.groups.get(&token));
            token.is_none_or(|token| token.refused_at.is_none())
        };
        let members = group.members.iter().filter_map(|id| self.members.get(id));
        let good = members.clone().take(SEARCHED).find(is_good);
        let member = good.or_else(|| members.clone().next())?;
        Some((Arc::clone(&member.caller), member.token))
    }

    fn token_interval(&self, expires_in: Option<Duration>) -> Duration {
        let regular = jittered(self.config.reauthenticate);
        match expires_in {
            Some(Duration::ZERO) => AFTER_EXPIRY.min(regular),
            Some(left) => left.min(regular),
            None => regular,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(1.0 - JITTER..=1.0))
}
