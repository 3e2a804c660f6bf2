//! One question about open watches, and what is known of its answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::identity::Attributes;
use crate::identity::callers::caller::{Asker, KnownCaller, KnownUser};
use crate::identity::open_watches::schedule::Schedule;
use crate::identity::open_watches::{GroupId, MemberId};
use crate::identity::rights::question::Question;
use crate::identity::tokens::token::{Digest, Token};

/// The watches about which one question is asked.
pub(super) struct Group {
    pub(super) subject: Subject,
    /// The user that the question is about.
    pub(super) asker: Asker,
    pub(super) members: BTreeSet<MemberId>,
    pub(super) schedule: Schedule,
    /// True while the question is asked.
    pub(super) is_asked: bool,
    /// When the last question with a clear answer was asked, or when the group began.
    pub(super) judged_at: Instant,
    /// When the first of two refusals was asked for.
    pub(super) refused_at: Option<Instant>,
    /// True after a change by which the right is lost, as far as kubefan sees: it is held back
    /// whenever its question is due, until that has an answer.
    pub(super) is_suspect: bool,
    /// True while the watches get no events.
    pub(super) is_held: bool,
}

pub(super) enum Subject {
    /// May the user read this?
    Right(Arc<Question>),
    /// Is the token still good, and whose is it?
    Token(Digest, Token, Arc<KnownUser>),
}

/// A question that must be asked now.
pub(in crate::identity::open_watches) struct Inquiry {
    pub(in crate::identity::open_watches) group: GroupId,
    /// The user that the question is about. The question is in flight until it is released.
    pub(in crate::identity::open_watches) asker: Asker,
    pub(in crate::identity::open_watches) about: About,
}

pub(in crate::identity::open_watches) enum About {
    /// May the caller read this? The last is the group of its token, if that is asked with.
    Right(Arc<KnownCaller>, Arc<Attributes>, Option<GroupId>),
    /// Who is the owner of the token?
    Token(Token),
}

/// How a change of roles concerns a right. The first is asked about first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::identity) enum Concern {
    /// The roles granted it before the change, and do not any more, as far as kubefan sees.
    LikelyLost,
    /// The roles do not grant it, and did not before; or kubefan does not see all of them.
    Unclear,
    /// The roles still grant it, as far as kubefan sees.
    Kept,
    /// Not at all.
    None,
}

impl Group {
    pub(super) fn new(subject: Subject, asker: Asker, first: Instant, now: Instant) -> Self {
        Self {
            subject,
            asker,
            members: BTreeSet::new(),
            schedule: Schedule::new(first),
            is_asked: false,
            judged_at: now,
            refused_at: None,
            is_suspect: false,
            is_held: false,
        }
    }

    /// True if the question is about one object, or a part of those of a resource and namespace.
    pub(super) fn is_narrow(&self) -> bool {
        match &self.subject {
            Subject::Right(question) => question.attributes.is_narrow(),
            Subject::Token(..) => false,
        }
    }
}
