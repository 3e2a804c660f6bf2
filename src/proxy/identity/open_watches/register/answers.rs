//! The effects that the API server's answers, and changes of roles, have on open watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::group::Concern;
use super::{Register, jittered};
use crate::identity::asking::reviews::{Judgement, TokenOwner};
use crate::identity::callers::caller::KnownUser;
use crate::identity::open_watches::GroupId;
use crate::identity::open_watches::open_watch::Ending;
use crate::identity::tokens::token::Digest;

/// A token is not good if the API server answers 401 twice, with at least this time between. The
/// API server also answers 401 while one of its authenticators fails.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(2);

impl Register {
    /// Applies the API server's answer to the question about a right that was asked at `asked_at`.
    /// The question was asked with the token of the group `token`, if there is one. Returns the
    /// watches that end.
    pub(in crate::identity::open_watches) fn judged(
        &mut self,
        id: GroupId,
        token: Option<GroupId>,
        judgement: Judgement,
        asked_at: Instant,
        now: Instant,
    ) -> Vec<Ending> {
        let regular = now + jittered(self.config.reauthorize);
        let Some(group) = self.groups.get_mut(&id) else {
            return Vec::new();
        };
        group.is_asked = false;
        match judgement {
            Judgement::Allowed => {
                group.schedule.answered(asked_at, regular);
                group.judged_at = asked_at;
                self.kept(id, now);
            }
            Judgement::Denied => return self.denied(id, asked_at, now),
            Judgement::Refused | Judgement::Unclear | Judgement::NoAnswer | Judgement::Busy => {
                group.schedule.unanswered(asked_at, now);
            }
        }
        self.enqueue(id);
        if let (Judgement::Refused, Some(token)) = (judgement, token) {
            self.doubt(token, now);
        }
        Vec::new()
    }

    /// Applies the API server's answer about a token that was asked about at `asked_at`. Returns
    /// the watches that end.
    pub(in crate::identity::open_watches) fn checked(
        &mut self,
        id: GroupId,
        owner: TokenOwner<Arc<KnownUser>>,
        expires_in: Option<Duration>,
        asked_at: Instant,
        now: Instant,
    ) -> Vec<Ending> {
        let regular = now + self.token_interval(expires_in);
        let Some(group) = self.groups.get_mut(&id) else {
            return Vec::new();
        };
        group.is_asked = false;
        match owner {
            TokenOwner::Refused => return self.refused(id, asked_at),
            TokenOwner::Unclear | TokenOwner::NoAnswer => {
                group.schedule.unanswered(asked_at, now);
            }
            TokenOwner::User(_) | TokenOwner::MayNotAsk => {
                group.schedule.answered(asked_at, regular);
                group.judged_at = asked_at;
                group.refused_at = None;
                self.kept(id, now);
            }
        }
        if let TokenOwner::User(user) = owner {
            for member in self.members_of(id) {
                self.set_user(member, &user, now);
            }
        }
        self.enqueue(id);
        Vec::new()
    }

    /// Asks again about these rights, which a change at `at` affects.
    pub(in crate::identity::open_watches) fn changed(
        &mut self,
        at: Instant,
        concerned: &[(Concern, GroupId)],
    ) {
        for (concern, id) in concerned {
            self.ask_after(*id, at, *concern == Concern::LikelyLost);
            match concern {
                Concern::LikelyLost => self.lost(*id),
                Concern::Kept => {
                    if let Some(group) = self.groups.get_mut(id) {
                        group.is_suspect = false;
                    }
                    self.hold(*id, false);
                }
                Concern::Unclear | Concern::None => {}
            }
        }
    }

    /// Asks again about the rights of `user` that have groups newer than `last`. While it was
    /// decided which rights the change at `at` affects, watches may have moved to these groups.
    pub(in crate::identity::open_watches) fn changed_since(
        &mut self,
        at: Instant,
        user: &KnownUser,
        last: GroupId,
    ) {
        let groups = self.users.get(&user.digest).map(|of| &of.groups);
        let later = groups.into_iter().flat_map(|of| of.iter().rev());
        let later: Vec<GroupId> = later.copied().take_while(|id| *id > last).collect();
        for id in later {
            self.ask_after(id, at, false);
        }
    }

    /// Asks again about the tokens that were issued for the object with this UID, which was deleted
    /// `at` some moment.
    pub(in crate::identity::open_watches) fn deleted(&mut self, uid: &str, at: Instant) {
        for id in self.by_uid.get(uid).cloned().unwrap_or_default() {
            self.ask_after(id, at, true);
            self.lost(id);
        }
    }

    /// Asks again about all tokens that were issued for objects, because some objects were deleted
    /// `at` some moment.
    pub(in crate::identity::open_watches) fn unknown_deleted(&mut self, at: Instant) {
        let all: BTreeSet<GroupId> = self.by_uid.values().flatten().copied().collect();
        for id in all {
            self.ask_after(id, at, false);
        }
    }

    /// Marks a right as probably lost. Its watches get no events until the API server has answered.
    fn lost(&mut self, id: GroupId) {
        self.suspect(id, true);
        self.hold(id, true);
    }

    /// Applies a yes of the API server. The watches get events again, unless the right is probably
    /// lost and its question is due again: then the yes may be from before the change, or late.
    fn kept(&mut self, id: GroupId, now: Instant) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.is_suspect &= group.schedule.is_changing();
        let is_due = group.schedule.has_unasked_change() || group.schedule.next().0 <= now;
        let is_held = group.is_held && group.is_suspect && is_due;
        self.hold(id, is_held);
    }

    /// Applies a no of the API server to the question of `asked_at`. Watches that the user may
    /// still have because of their selectors move to a question with these selectors. The others
    /// end. Watches that were opened after `asked_at` were allowed later, so their question is
    /// asked again.
    fn denied(&mut self, id: GroupId, asked_at: Instant, now: Instant) -> Vec<Ending> {
        let group = self.groups.get_mut(&id).expect("the group was just found");
        group.schedule.answered(asked_at, now);
        let mut endings = Vec::new();
        for id in self.members_of(id) {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            if member.opened_at > asked_at {
                continue;
            }
            match member.narrower.take() {
                Some(narrower) => self.move_right(id, narrower, now),
                None => endings.extend(self.end(id)),
            }
        }
        self.enqueue(id);
        endings
    }

    /// Asks about a token that the API server has refused in another request.
    pub(in crate::identity::open_watches) fn token_refused(
        &mut self,
        token: &Digest,
        now: Instant,
    ) {
        if let Some(id) = self.tokens.get(token).copied() {
            self.doubt(id, now);
        }
    }

    /// Asks about a token that was refused in a question about a right.
    fn doubt(&mut self, id: GroupId, now: Instant) {
        if let Some(group) = self.groups.get_mut(&id)
            && group.refused_at.is_none()
        {
            group.schedule.ask_by(now);
            self.enqueue(id);
        }
    }

    /// Applies the refusal of a token that was used at `asked_at`. After the second refusal, the
    /// token's watches end.
    fn refused(&mut self, id: GroupId, asked_at: Instant) -> Vec<Ending> {
        let Some(group) = self.groups.get_mut(&id) else {
            return Vec::new();
        };
        let first = *group.refused_at.get_or_insert(asked_at);
        let second = first + BETWEEN_REFUSALS;
        if asked_at < second {
            let regular = asked_at + self.config.reauthenticate;
            group.schedule.answered(asked_at, regular);
            group.schedule.ask_by(second);
            self.hold(id, true);
            self.enqueue(id);
            return Vec::new();
        }
        let members = self.members_of(id).into_iter();
        members.filter_map(|id| self.end(id)).collect()
    }
}
