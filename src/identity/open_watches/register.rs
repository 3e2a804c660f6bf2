//! Which watches are open, by the questions that decide about them. It decides without I/O;
//! `mod.rs` asks the questions.
//!
//! ```text
//! group    one question, and what is known of its answers
//! answers  what answers and changes do to the watches
//! ```

mod answers;
mod group;

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;

use rand::Rng;
use tokio::time::Instant;

use super::Config;
use super::GroupId;
use super::MOST_OF_USER;
use super::MemberId;
use super::open_watch::End;
use super::open_watch::Ending;
use super::queue::Queue;
use crate::identity::Attributes;
use crate::identity::authorizer::Question;
use crate::identity::caller::Credential;
use crate::identity::caller::KnownCaller;
use crate::identity::caller::KnownUser;
use crate::identity::deleted_objects::DeletedObjects;
use crate::identity::deleted_objects::uids_of;
use crate::identity::rbac::RecentChanges;
use crate::identity::token::Digest;
use crate::identity::token::Token;
use crate::net::Abort;

use group::Group;
use group::Subject;

pub(super) use group::About;
pub(in crate::identity) use group::Concern;
pub(super) use group::Inquiry;
pub(in crate::identity) use group::TokenCheck;

/// How often a token is asked about after its own `exp`. The API server accepts it a little longer.
const AFTER_EXPIRY: Duration = Duration::from_secs(10);
/// Intervals are shortened by up to this share, so that questions spread over time.
const JITTER: f64 = 0.2;
/// How many members of a group are searched for one whose token was not refused.
const SEARCHED: usize = 16;

/// The open watches and the questions about them.
pub(super) struct Register {
    config: Config,
    members: HashMap<MemberId, Member>,
    groups: HashMap<GroupId, Group>,
    rights: HashMap<Arc<Question>, GroupId>,
    tokens: HashMap<Digest, GroupId>,
    /// The questions about tokens by the uids of the objects for which the tokens were issued.
    by_uid: HashMap<String, BTreeSet<GroupId>>,
    /// The users with open watches, and the questions about their rights.
    users: HashMap<Digest, UserQuestions>,
    /// The watches whose client certificates expire, in the order of time.
    expiries: BTreeSet<(Instant, MemberId)>,
    pub(super) queue: Queue,
    last_id: u64,
}

/// A watch to be added.
pub(super) struct Opened {
    pub(super) caller: Arc<KnownCaller>,
    /// The digest of the caller's token, if it has one.
    pub(super) token: Option<Digest>,
    /// What the watch reads, with its selectors.
    pub(super) attributes: Attributes,
    pub(super) end: Arc<End>,
    pub(super) abort: Option<Abort>,
}

/// The changes a short time ago.
#[derive(Clone, Copy)]
pub(in crate::identity) struct Recent<'a> {
    pub(in crate::identity) roles: &'a RecentChanges,
    pub(in crate::identity) deleted: &'a DeletedObjects,
}

/// The changes a short time before a watch was opened.
#[derive(Default)]
pub(super) struct Unsettled {
    /// When the user's roles changed last.
    roles: Option<Instant>,
    /// When objects were deleted for which its token was issued, and when some of which the uids are
    /// not known.
    deleted: (Option<Instant>, Option<Instant>),
}

struct Member {
    caller: Arc<KnownCaller>,
    right: GroupId,
    token: Option<GroupId>,
    /// What is asked if the user may not read everything, whatever the selectors are.
    narrower: Option<Attributes>,
    opened_at: Instant,
    /// When the caller's certificate expires.
    expires_at: Option<Instant>,
    end: Arc<End>,
    abort: Option<Abort>,
}

struct UserQuestions {
    user: Arc<KnownUser>,
    groups: BTreeSet<GroupId>,
}

impl Unsettled {
    pub(super) fn of(opened: &Opened, recent: Recent<'_>) -> Self {
        let user = opened.caller.user();
        Self {
            roles: recent.roles.last(user, &opened.attributes.namespace),
            deleted: recent.deleted.unsettled(user),
        }
    }
}

impl Register {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            members: HashMap::new(),
            groups: HashMap::new(),
            rights: HashMap::new(),
            tokens: HashMap::new(),
            by_uid: HashMap::new(),
            users: HashMap::new(),
            expiries: BTreeSet::new(),
            queue: Queue::new(MOST_OF_USER),
            last_id: 0,
        }
    }

    /// Adds a watch that was allowed just now. Its questions are asked again after the `unsettled`
    /// changes, as those of the watches that were open before.
    pub(super) fn open(&mut self, opened: Opened, unsettled: Unsettled, now: Instant) -> MemberId {
        let id = MemberId(self.next_id());
        let general = opened.attributes.without_selectors();
        let narrower = opened
            .attributes
            .has_selectors()
            .then_some(opened.attributes);
        let right = self.join_right(id, &opened.caller, general, now);
        if let Some(at) = unsettled.roles {
            self.ask_after(right, at, false);
        }
        let token = match (&opened.caller.credential, opened.token) {
            (Credential::Token(token), Some(digest)) => {
                let token = self.join_token(id, digest, token, &opened.caller.user, now);
                let (known, unknown) = unsettled.deleted;
                if let Some(at) = known.max(unknown) {
                    self.ask_after(token, at, known.is_some());
                }
                Some(token)
            }
            _ => None,
        };
        let expires_at = expiry(&opened.caller.credential, now);
        self.expiries.extend(expires_at.map(|at| (at, id)));
        let member = Member {
            caller: opened.caller,
            right,
            token,
            narrower,
            opened_at: now,
            expires_at,
            end: opened.end,
            abort: opened.abort,
        };
        self.members.insert(id, member);
        id
    }

    /// Removes a watch that has ended.
    pub(super) fn close(&mut self, id: MemberId) {
        if let Some(member) = self.members.remove(&id) {
            if let Some(at) = member.expires_at {
                self.expiries.remove(&(at, id));
            }
            self.leave(member.right, id);
            if let Some(token) = member.token {
                self.leave(token, id);
            }
        }
    }

    /// The most urgent question that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Inquiry> {
        let (id, user) = self.queue.take(now)?;
        let group = self.groups.get_mut(&id)?;
        group.is_asked = true;
        let group = &self.groups[&id];
        let about = match &group.subject {
            Subject::Token(_, token, _) => About::Token(token.clone()),
            Subject::Right(question) => {
                let (caller, token) = match self.asker(group)? {
                    (caller, _) if group.schedule.is_kubefans_turn() => {
                        (Arc::new(caller.without_credentials()), None)
                    }
                    asker => asker,
                };
                About::Right(caller, Box::new(question.attributes.clone()), token)
            }
        };
        Some(Inquiry {
            group: id,
            user,
            about,
        })
    }

    /// Ends the watches whose client certificates have expired.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Ending> {
        let mut endings = Vec::new();
        while let Some((_, id)) = self.expiries.first().filter(|(at, _)| *at <= now).copied() {
            endings.extend(self.end(id));
        }
        endings
    }

    /// When the next client certificate expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// The number of open watches.
    pub(super) fn watches(&self) -> usize {
        self.members.len()
    }

    /// The number of questions about rights, and about tokens.
    pub(super) fn questions(&self) -> (usize, usize) {
        (self.rights.len(), self.tokens.len())
    }

    /// The users with open watches, and the question that began last.
    pub(super) fn users(&self) -> (Vec<Arc<KnownUser>>, GroupId) {
        let users = self.users.values();
        let users = users.map(|questions| Arc::clone(&questions.user));
        (users.collect(), GroupId(self.last_id))
    }

    /// The questions about the rights of `user`.
    pub(super) fn rights_of(&self, user: &KnownUser) -> Vec<(GroupId, Arc<Question>)> {
        let questions = self.users.get(&user.digest);
        let groups = questions.into_iter().flat_map(|of| &of.groups);
        let right = |id: &GroupId| match &self.groups.get(id)?.subject {
            Subject::Right(question) => Some((*id, Arc::clone(question))),
            Subject::Token(..) => None,
        };
        groups.filter_map(right).collect()
    }

    /// The longest time since a question about a right was asked that has a clear answer.
    pub(super) fn oldest_judgement(&self, now: Instant) -> Duration {
        let rights = self.rights.values().filter_map(|id| self.groups.get(id));
        let ages = rights.map(|group| now.saturating_duration_since(group.judged_at));
        ages.max().unwrap_or_default()
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

    /// The token of a watch has another user now: its groups may have changed.
    fn set_user(&mut self, id: MemberId, user: &Arc<KnownUser>, now: Instant) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.caller.user.digest == user.digest {
            return;
        }
        member.caller = Arc::new(KnownCaller {
            user: Arc::clone(user),
            credential: member.caller.credential.clone(),
            is_stale: false,
        });
        let right = member.right;
        if let Subject::Right(question) = &self.groups[&right].subject {
            let attributes = question.attributes.clone();
            self.move_right(id, attributes, now);
        }
    }

    /// Moves a watch to another question about a right, which is asked at once, and after the changes
    /// after which the old one is asked.
    fn move_right(&mut self, id: MemberId, attributes: Attributes, now: Instant) {
        let member = &self.members[&id];
        let (caller, old) = (Arc::clone(&member.caller), member.right);
        let schedule = self.groups[&old].schedule.clone();
        let new = self.join_right(id, &caller, attributes, now);
        if new != old {
            self.leave(old, id);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.right = new;
        }
        if let Some(group) = self.groups.get_mut(&new) {
            group.schedule.inherit(&schedule);
            group.schedule.ask_by(now);
        }
        self.enqueue(new);
    }

    fn join_right(
        &mut self,
        member: MemberId,
        caller: &KnownCaller,
        attributes: Attributes,
        now: Instant,
    ) -> GroupId {
        let question = Question::new(caller, attributes);
        let id = match self.rights.get(&question) {
            Some(id) => *id,
            None => {
                let id = GroupId(self.next_id());
                let first = now + jittered(self.config.reauthorize);
                let (user, name) = (question.user, caller.user.name);
                let question = Arc::new(question);
                self.rights.insert(Arc::clone(&question), id);
                self.groups
                    .insert(id, Group::new(Subject::Right(question), name, first, now));
                let questions = self.users.entry(user);
                let questions = questions.or_insert_with(|| UserQuestions {
                    user: Arc::clone(&caller.user),
                    groups: BTreeSet::new(),
                });
                questions.groups.insert(id);
                self.enqueue(id);
                id
            }
        };
        self.join(id, member);
        id
    }

    fn join_token(
        &mut self,
        member: MemberId,
        digest: Digest,
        token: &Token,
        user: &Arc<KnownUser>,
        now: Instant,
    ) -> GroupId {
        let id = match self.tokens.get(&digest) {
            Some(id) => *id,
            None => {
                let id = GroupId(self.next_id());
                let expires_in = token.expires_in(SystemTime::now());
                let first = now + self.token_interval(expires_in);
                self.tokens.insert(digest, id);
                for uid in uids_of(&user.user) {
                    let groups = self.by_uid.entry(uid.to_owned());
                    groups.or_default().insert(id);
                }
                let subject = Subject::Token(digest, token.clone(), Arc::clone(user));
                let group = Group::new(subject, user.name, first, now);
                self.groups.insert(id, group);
                self.enqueue(id);
                id
            }
        };
        self.join(id, member);
        id
    }

    fn join(&mut self, id: GroupId, member: MemberId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.members.insert(member);
        }
    }

    /// Removes a watch from a group, and the group if it was the last.
    fn leave(&mut self, id: GroupId, member: MemberId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.members.remove(&member);
        if !group.members.is_empty() {
            return;
        }
        self.queue.remove(id);
        match self.groups.remove(&id).map(|group| group.subject) {
            Some(Subject::Right(question)) => {
                self.rights.remove(&question);
                if let Some(questions) = self.users.get_mut(&question.user) {
                    questions.groups.remove(&id);
                    if questions.groups.is_empty() {
                        self.users.remove(&question.user);
                    }
                }
            }
            Some(Subject::Token(digest, _, user)) => {
                self.tokens.remove(&digest);
                for uid in uids_of(&user.user) {
                    if let Some(groups) = self.by_uid.get_mut(uid) {
                        groups.remove(&id);
                        if groups.is_empty() {
                            self.by_uid.remove(uid);
                        }
                    }
                }
            }
            None => {}
        }
    }

    /// Asks the question of a group several times after a change `at` some moment.
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
            self.queue.set(id, group.user, group.schedule.next());
        }
    }

    /// The caller with whose credentials a question about a right is asked: one whose token was not
    /// refused, if there is one.
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

/// When the certificate of `credential` expires, if it has one; `None` if that is too far.
fn expiry(credential: &Credential, now: Instant) -> Option<Instant> {
    let Credential::Certificate(Some(expires_at)) = credential else {
        return None;
    };
    let left = expires_at.duration_since(SystemTime::now());
    now.checked_add(left.unwrap_or_default())
}

fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(1.0 - JITTER..=1.0))
}
