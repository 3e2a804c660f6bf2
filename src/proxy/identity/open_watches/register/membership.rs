//! The membership of watches in groups: watches with equal questions are members of one group.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use super::group::{Group, Subject};
use super::{Register, UserQuestions, jittered};
use crate::identity::Attributes;
use crate::identity::callers::caller::{KnownCaller, KnownUser};
use crate::identity::open_watches::{GroupId, MemberId};
use crate::identity::rights::question::Question;
use crate::identity::tokens::deleted_objects::uids_of;
use crate::identity::tokens::token::{Digest, Token};

impl Register {
    /// Sets the user of a watch, because the owner of its token has changed, for example the
    /// owner's groups.
    pub(super) fn set_user(&mut self, id: MemberId, user: &Arc<KnownUser>, now: Instant) {
        if let Some(member) = self.members.get_mut(&id)
            && let Some(right) = member.right
            && member.caller.user.digest != user.digest
            && let Subject::Right(question) = &self.groups[&right].subject
        {
            let credential = member.caller.credential.clone();
            member.caller = Arc::new(KnownCaller::new(Arc::clone(user), credential));
            let attributes = Arc::clone(&question.attributes);
            self.move_right(id, attributes, now);
        }
    }

    /// Moves a watch to another question about a right. The new question is asked at once, and
    /// after the changes that the old question is still asked about. It is also asked after recent
    /// changes that affect only the watch's new user.
    pub(super) fn move_right(&mut self, id: MemberId, attributes: Arc<Attributes>, now: Instant) {
        let member = &self.members[&id];
        let Some(old) = member.right else {
            return;
        };
        let (caller, narrower) = (Arc::clone(&member.caller), member.narrower.clone());
        let schedule = self.groups[&old].schedule.clone();
        let is_held = self.groups[&old].is_held;
        let roles = &self.recent.roles;
        let changed = roles.last(caller.user(), &attributes.namespace);
        let new = self.join_right(id, &caller, attributes, narrower.as_deref(), now);
        if new != old {
            self.leave(old, id);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.right = Some(new);
        }
        if let Some(group) = self.groups.get_mut(&new) {
            group.schedule.inherit(&schedule);
            if let Some(at) = changed {
                group.schedule.changed(at, false);
            }
            group.schedule.ask_by(now);
            group.is_suspect |= is_held;
        }
        if is_held {
            self.hold(new, true);
        }
        self.update_hold(id);
        self.enqueue(new);
    }

    /// Returns true if the group's question is about all names, and decides about watches of single
    /// names.
    pub(in crate::identity::open_watches) fn has_covered_names(&self, id: GroupId) -> bool {
        let group = self.groups.get(&id);
        group.is_some_and(|group| !group.covered_names.is_empty())
    }

    /// Moves up to `most` watches of single names to questions about these names, because a right
    /// to all names does not cover them any more.
    pub(in crate::identity::open_watches) fn names_uncovered(
        &mut self,
        id: GroupId,
        most: usize,
        now: Instant,
    ) {
        for _ in 0..most {
            let group = self.groups.get_mut(&id);
            let Some(watch) = group.and_then(|group| group.covered_names.pop_first()) else {
                return;
            };
            let member = self.members.get_mut(&watch);
            if let Some(narrower) = member.and_then(|member| member.narrower.take()) {
                self.move_right(watch, narrower, now);
            }
        }
    }

    /// Adds a watch to the group of the question about `attributes`. `narrower` are the watch's own
    /// attributes if these are more general.
    pub(super) fn join_right(
        &mut self,
        member: MemberId,
        caller: &KnownCaller,
        attributes: Arc<Attributes>,
        narrower: Option<&Attributes>,
        now: Instant,
    ) -> GroupId {
        let is_name_covered = narrower.is_some_and(|narrower| narrower.name != attributes.name);
        let question = Question::new(caller, attributes);
        let id = match self.rights.get(&question) {
            Some(id) => *id,
            None => {
                let id = GroupId(self.next_id());
                let first = now + jittered(self.config.reauthorize);
                let (user, asker) = (question.user, caller.user.asker());
                let question = Arc::new(question);
                self.rights.insert(Arc::clone(&question), id);
                self.groups
                    .insert(id, Group::new(Subject::Right(question), asker, first, now));
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
        self.join(id, member, is_name_covered);
        id
    }

    pub(super) fn join_token(
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
                let group = Group::new(subject, user.asker(), first, now);
                self.groups.insert(id, group);
                self.enqueue(id);
                id
            }
        };
        self.join(id, member, false);
        id
    }

    fn join(&mut self, id: GroupId, member: MemberId, is_name_covered: bool) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.members.insert(member);
            if is_name_covered {
                group.covered_names.insert(member);
            }
        }
    }

    /// Removes a watch from a group, and removes the group if the watch was its last.
    pub(super) fn leave(&mut self, id: GroupId, member: MemberId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.members.remove(&member);
        group.covered_names.remove(&member);
        if !group.members.is_empty() {
            return;
        }
        self.queue.remove(id);
        self.held.remove(&id);
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
}
