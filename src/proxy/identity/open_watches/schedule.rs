//! When a question about open watches is asked again, calculated from times and answers alone.

use std::time::Duration;

use tokio::time::Instant;

/// How many seconds after a change of rights a question is asked again. The API server's authorizer
/// reads roles through its own caches, so it may learn of a change later than kubefan.
const AFTER_CHANGE: &[u64] = &[0, 1, 5, 30];
/// How many seconds after a change the question about a right that is probably lost is asked again.
/// More questions find the moment of the loss sooner. The API server may accept a token for ten
/// seconds after its account was deleted, because it remembers the token.
const AFTER_LIKELY_LOSS: &[u64] = &[0, 1, 2, 3, 4, 5, 11, 30];
/// Least time between two equal questions.
const LEAST_PAUSE: Duration = Duration::from_millis(250);
/// The pause after a question without a clear answer. The pause doubles with each further such
/// question.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause after a question without a clear answer. Every second question is asked with
/// the caller's credentials, so this is half of the usual time between two such questions.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// After this number of questions in sequence without a clear answer, further questions are not
/// urgent. Otherwise users with questions that are never answered would delay the others.
const REPEATED: u32 = 2;

/// How urgent a question is. Of the questions that are due, the most urgent one is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::identity) enum Urgency {
    /// The right is probably lost.
    LikelyLost,
    /// Roles or bindings that may affect the right have changed, or the last answer was not clear.
    Changed,
    /// The question was not asked for a while, or has got no clear answer several times in
    /// sequence.
    Regular,
}

/// Decides when the API server is asked again whether the user of one open watch still has the
/// right to it.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    regular: Instant,
    change: Option<Change>,
    retry: Option<Instant>,
    /// The number of questions in sequence without a clear answer.
    unanswered: u32,
    last_asked: Option<Instant>,
}

/// A change of rights. The question is asked several times after it.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Instant,
    is_loss_likely: bool,
    /// The number of waits after the change that have ended.
    done: usize,
}

impl Schedule {
    /// Creates a schedule that asks at `regular`.
    pub(super) fn new(regular: Instant) -> Self {
        Self {
            regular,
            change: None,
            retry: None,
            unanswered: 0,
            last_asked: None,
        }
    }

    /// Schedules several questions after a change of rights `at` some moment. If the schedule
    /// already has this change or a later one, schedules only the remaining questions after that
    /// change.
    pub(super) fn changed(&mut self, at: Instant, is_loss_likely: bool) {
        let known = self.change.filter(|change| change.at >= at);
        let was_likely = self.change.is_some_and(|change| change.is_loss_likely);
        self.change = Some(Change {
            at: known.map_or(at, |change| change.at),
            is_loss_likely: is_loss_likely || was_likely,
            done: known.map_or(0, |change| change.done),
        });
    }

    /// Schedules the remaining questions after the last change of `other`, unless this schedule has
    /// a later change.
    pub(super) fn inherit(&mut self, other: &Self) {
        if let Some(change) = other.change
            && self.change.is_none_or(|own| own.at < change.at)
        {
            self.change = Some(change);
        }
    }

    /// Schedules a question at `at`, unless an earlier one is scheduled.
    pub(super) fn ask_by(&mut self, at: Instant) {
        self.retry = Some(self.retry.map_or(at, |retry| retry.min(at)));
    }

    /// Returns true if it is kubefan's turn to ask with its own credentials, because questions with
    /// the caller's credentials get no clear answer. If the caller sends very many requests, the
    /// API server refuses such questions, or answers them late.
    pub(super) fn is_kubefans_turn(&self) -> bool {
        self.unanswered >= REPEATED && self.unanswered.is_multiple_of(2)
    }

    /// Returns true if no question was asked after the last change.
    pub(super) fn has_unasked_change(&self) -> bool {
        self.change.is_some_and(|change| change.done == 0)
    }

    /// Returns when the question is next asked, and how urgent it is then.
    pub(super) fn next(&self) -> (Instant, Urgency) {
        let regular = (self.regular, Urgency::Regular);
        let retry = self.retry.map(|at| (at, Urgency::Changed));
        let change = self.change;
        let change = change.and_then(|change| Some((change.next()?, change.urgency())));
        let sooner = [retry, change].into_iter().flatten();
        let (at, mut urgency) = sooner.fold(regular, Ord::min);
        if let Some(change) = self.change.filter(|change| change.done == 0) {
            // The change has happened, so a question that was already due is urgent too. Its
            // earlier time does not change: otherwise repeated changes could delay the last of many
            // questions without end.
            urgency = urgency.min(change.urgency());
        }
        let earliest = self.last_asked.map(|asked| asked + LEAST_PAUSE);
        let at = earliest.map_or(at, |earliest| at.max(earliest));
        if self.unanswered < REPEATED {
            (at, urgency)
        } else {
            (at, Urgency::Regular)
        }
    }

    /// Returns true until the last question after a change of rights was asked.
    pub(super) fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Notes that the question of `asked_at` has got a clear answer. Without changes, it is asked
    /// again at `regular`.
    pub(super) fn answered(&mut self, asked_at: Instant, regular: Instant) {
        self.asked(asked_at);
        self.unanswered = 0;
        self.regular = regular;
    }

    /// Notes at `now` that the question of `asked_at` has got no clear answer.
    pub(super) fn unanswered(&mut self, asked_at: Instant, now: Instant) {
        self.asked(asked_at);
        let doubled = FIRST_RETRY.saturating_mul(1 << self.unanswered.min(6));
        self.unanswered = self.unanswered.saturating_add(1);
        self.retry = Some(now + doubled.min(LAST_RETRY));
        // The retry also replaces the regular question, which would otherwise remain due.
        self.regular = self.regular.max(now + LAST_RETRY);
    }

    /// Notes a question of `asked_at`, and counts the waits that have ended by then.
    fn asked(&mut self, asked_at: Instant) {
        self.last_asked = Some(asked_at);
        self.retry = None;
        self.change = self.change.and_then(|change| change.asked(asked_at));
    }
}

impl Change {
    fn urgency(self) -> Urgency {
        if self.is_loss_likely {
            Urgency::LikelyLost
        } else {
            Urgency::Changed
        }
    }

    fn waits(self) -> &'static [u64] {
        if self.is_loss_likely {
            AFTER_LIKELY_LOSS
        } else {
            AFTER_CHANGE
        }
    }

    fn next(self) -> Option<Instant> {
        let wait = *self.waits().get(self.done)?;
        Some(self.at + Duration::from_secs(wait))
    }

    /// Returns the rest of the change after a question of `asked_at`; `None` if all its waits have
    /// ended.
    fn asked(mut self, asked_at: Instant) -> Option<Self> {
        while self.next()? <= asked_at {
            self.done += 1;
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLED: Duration = Duration::from_secs(30);

    /// A change, and the answers to the questions after it.
    struct Case {
        is_loss_likely: bool,
        /// How long each answer takes, in milliseconds.
        delay: u64,
        /// Whether no answer is clear.
        fails: bool,
        /// How long the questions are observed, in milliseconds after the change.
        until: u64,
    }

    impl Case {
        /// A change after which the questions are answered at once and clearly.
        const ANSWERED: Self = Self {
            is_loss_likely: false,
            delay: 0,
            fails: false,
            until: 61_000,
        };

        /// Returns the milliseconds after the change at which a question is asked.
        fn asked(&self) -> Vec<u64> {
            let start = Instant::now();
            let millis = Duration::from_millis;
            let mut schedule = Schedule::new(start + millis(60_000));
            schedule.changed(start, self.is_loss_likely);
            let mut asked = Vec::new();
            let mut now = start;
            loop {
                let (next, _) = schedule.next();
                let at = next.max(now);
                if at - start >= millis(self.until) {
                    return asked;
                }
                asked.push((at - start).as_millis() as u64);
                now = at + millis(self.delay);
                if self.fails {
                    schedule.unanswered(at, now)
                } else {
                    schedule.answered(at, now + millis(60_000))
                }
            }
        }
    }

    #[test]
    fn after_a_change_the_question_is_asked_several_times() {
        assert_eq!(Case::ANSWERED.asked(), [0, 1_000, 5_000, 30_000]);
        let likely = Case {
            is_loss_likely: true,
            ..Case::ANSWERED
        };
        let expected = [0, 1_000, 2_000, 3_000, 4_000, 5_000, 11_000, 30_000];
        assert_eq!(likely.asked(), expected);
        // A slow answer covers the waits that ended before its question.
        let slow = Case {
            delay: 6_000,
            ..Case::ANSWERED
        };
        assert_eq!(slow.asked(), [0, 6_000, 30_000]);
        // Without an answer, retries become rarer, and the waits still count.
        let failing = Case {
            fails: true,
            until: 62_000,
            ..Case::ANSWERED
        };
        let expected = [0, 1_000, 3_000, 5_000, 13_000, 29_000, 30_000, 60_000];
        assert_eq!(failing.asked(), expected);
    }

    #[test]
    fn without_changes_the_question_is_asked_regularly() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start + SETTLED);
        assert_eq!(schedule.next(), (start + SETTLED, Urgency::Regular));
        schedule.answered(start + SETTLED, start + 2 * SETTLED);
        assert_eq!(schedule.next(), (start + 2 * SETTLED, Urgency::Regular));
        schedule.ask_by(start + SETTLED + LEAST_PAUSE / 2);
        let soon = start + SETTLED + LEAST_PAUSE;
        assert_eq!(schedule.next(), (soon, Urgency::Changed));
    }

    #[test]
    fn a_second_change_starts_anew_and_a_likely_loss_stays_likely() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start + 10 * SETTLED);
        schedule.changed(start, true);
        schedule.answered(start, start + 10 * SETTLED);
        let second = start + Duration::from_millis(100);
        schedule.changed(second, false);
        let earliest = start + LEAST_PAUSE;
        assert_eq!(schedule.next(), (earliest, Urgency::LikelyLost));
        let third = start + Duration::from_millis(300);
        schedule.changed(third, false);
        assert_eq!(schedule.next(), (third, Urgency::LikelyLost));
    }

    #[test]
    fn an_older_change_replaces_no_later_one() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let change = start + 2 * second;
        let mut schedule = Schedule::new(start + 10 * SETTLED);
        schedule.changed(change, false);
        schedule.answered(change, start + 10 * SETTLED);
        let next = change + second;
        assert_eq!(schedule.next(), (next, Urgency::Changed));
        schedule.changed(start, false);
        assert_eq!(schedule.next(), (next, Urgency::Changed));
        // But a right that is probably lost is urgent.
        schedule.changed(start, true);
        assert_eq!(schedule.next(), (next, Urgency::LikelyLost));
    }

    #[test]
    fn a_change_is_urgent_although_the_question_was_due_before() {
        let start = Instant::now();
        let now = start + SETTLED;
        for (is_loss_likely, expected) in [(false, Urgency::Changed), (true, Urgency::LikelyLost)] {
            let mut regular = Schedule::new(start);
            regular.changed(now, is_loss_likely);
            assert_eq!(regular.next(), (start, expected));
            let mut retry = Schedule::new(start + 10 * SETTLED);
            retry.ask_by(start);
            retry.changed(now, is_loss_likely);
            assert_eq!(retry.next(), (start, expected));
        }
    }

    #[test]
    fn questions_that_are_never_answered_are_not_urgent() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(start + 10 * SETTLED);
        schedule.changed(start, true);
        schedule.unanswered(start, start);
        assert_eq!(schedule.next(), (start + second, Urgency::LikelyLost));
        schedule.unanswered(start + second, start + second);
        assert_eq!(schedule.next(), (start + 2 * second, Urgency::Regular));
        schedule.answered(start + 2 * second, start + 10 * SETTLED);
        assert_eq!(schedule.next(), (start + 3 * second, Urgency::LikelyLost));
    }

    #[test]
    fn questions_without_an_answer_become_rare_but_never_stop() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut now = start;
        for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
            schedule.unanswered(now, now);
            let (next, _) = schedule.next();
            assert_eq!((next - now).as_secs(), expected);
            now = next;
        }
    }
}
