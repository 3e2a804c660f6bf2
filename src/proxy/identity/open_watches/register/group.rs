//! One question about open watches, and its state.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::identity::Attributes;
use crate::identity::callers::caller::{Asker, KnownCaller, KnownUser};
use crate::identity::open_watches::schedule::Schedule;
use crate::identity::open_watches::{GroupId, MemberId};
use crate::identity::rights::question::Question;
use crate::identity::tokens::token::{Digest, Token};

/// The watches that one question decides about.
pub(super) struct Group {
    pub(super) subject: Subject,
    /// The user that the question is about.
    pub(super) asker: Asker,
    pub(super) members: BTreeSet<MemberId>,
    /// The members that are watches of single names, if the question is about all names.
    pub(super) covered_names: BTreeSet<MemberId>,
    pub(super) schedule: Schedule,
    /// True while the question is asked.
    pub(super) is_asked: bool,
    /// When the last question with a clear answer was asked, or when the group began.
    pub(super) judged_at: Instant,
    /// When the first of two refusals was asked for.
    pub(super) refused_at: Option<Instant>,
    /// True after a change that probably took the right away. The events of the watches are then
    /// held back whenever the question is due, until it has an answer.
    pub(super) is_suspect: bool,
    /// True while the watches get no events.
    pub(super) is_held: bool,
}

pub(super) enum Subject {
    /// Asks whether the user may read this.
    Right(Arc<Question>),
    /// Asks whether the token is still good, and for its owner.
    Token(Digest, Token, Arc<KnownUser>),
}

/// A question that must be asked now.
pub(in crate::identity::open_watches) struct Inquiry {
    pub(in crate::identity::open_watches) group: GroupId,
    /// The asker for whom the question is asked. The question is in flight until the asker is
    /// released.
    pub(in crate::identity::open_watches) asker: Asker,
    pub(in crate::identity::open_watches) about: About,
}

pub(in crate::identity::open_watches) enum About {
    /// Asks whether the caller may read this. The last field is the group of the caller's token, if
    /// kubefan asks with this token.
    Right(Arc<KnownCaller>, Arc<Attributes>, Option<GroupId>),
    /// Asks for the owner of the token.
    Token(Token),
}

/// How a change of roles affects a right. The rights of the first variant are asked about first,
/// and their watches get no events until the API server has answered. This bounds what a user sees
/// after a loss, however many questions wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::identity) enum Concern {
    /// The roles granted the right before the change, and do not any more, as far as kubefan sees.
    LikelyLost,
    /// The roles do not grant the right, and did not before; or kubefan does not see all of the
    /// roles.
    Unclear,
    /// The roles still grant the right, as far as kubefan sees.
    Kept,
    /// The change does not affect the right.
    None,
}

impl Group {
    pub(super) fn new(subject: Subject, asker: Asker, first: Instant, now: Instant) -> Self {
        Self {
            subject,
            asker,
            members: BTreeSet::new(),
            covered_names: BTreeSet::new(),
            schedule: Schedule::new(first),
            is_asked: false,
            judged_at: now,
            refused_at: None,
            is_suspect: false,
            is_held: false,
        }
    }

    /// Returns true if the question is about one object, or about a part of the objects of a
    /// resource and namespace.
    pub(super) fn is_narrow(&self) -> bool {
        matches!(&self.subject, Subject::Right(question) if question.attributes.is_narrow())
    }
}
