//! The machine: which call follows which answer.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::leader_election::machine::{Answer, Call, Machine, Next, Now};
use crate::leader_election::{Config, LeaseRecord, Stored};

const SECOND: Duration = Duration::from_secs(1);

/// A machine with the name `me`, and a clock.
struct Test {
    machine: Machine,
    origin: Instant,
    now: Instant,
}

impl Test {
    fn new() -> Self {
        let config = Config {
            identity: "me".to_owned(),
            lease_duration: 15 * SECOND,
            renew_deadline: 10 * SECOND,
            ..Config::default()
        };
        let now = Instant::now();
        Self {
            machine: Machine::new(config),
            origin: now,
            now,
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.now,
            wall: wall(self.now - self.origin),
        }
    }

    fn begin(&mut self) -> Call {
        self.machine.begin(self.now())
    }

    /// Passes an answer that comes at once.
    fn answer(&mut self, answer: Answer) -> Next {
        self.machine.proceed(answer, self.now, self.now())
    }

    fn find(&mut self, record: Option<LeaseRecord>, version: &str) -> Next {
        self.answer(Answer::Found(record.map(|record| stored(&record, version))))
    }

    /// Makes the machine the leader, at version `1`.
    fn lead(&mut self) -> LeaseRecord {
        assert_eq!(self.begin(), Call::Get);
        let Next::Call(Call::Create(record)) = self.find(None, "") else {
            panic!("it creates the lease");
        };
        let next = self.answer(Answer::Written(stored(&record, "1")));
        assert_eq!(next, Next::Wait);
        assert!(self.machine.is_leading(self.now));
        record
    }
}

fn wall(since: Duration) -> Timestamp {
    let since = i64::try_from(since.as_secs()).expect("a short test");
    Timestamp::from_second(1_800_000_000 + since).expect("a time")
}

fn stored(record: &LeaseRecord, version: &str) -> Stored {
    Stored {
        record: record.clone(),
        version: version.to_owned(),
    }
}

/// Returns a record of `holder`, taken and renewed at `renewed` seconds.
fn held(holder: &str, renewed: u64, transitions: i32) -> LeaseRecord {
    let time = Some(wall(Duration::from_secs(renewed)));
    LeaseRecord {
        holder: holder.to_owned(),
        lease_duration: Some(15 * SECOND),
        acquired_at: time,
        renewed_at: time,
        transitions,
    }
}

#[test]
fn a_lease_that_does_not_exist_is_created() {
    let mut test = Test::new();
    assert_eq!(test.lead(), held("me", 0, 0));
    let until = test.machine.leading_until;
    assert_eq!(until, Some(test.now + 10 * SECOND));
}

#[test]
fn a_lease_without_a_holder_is_taken_at_once() {
    let empty = LeaseRecord {
        lease_duration: None,
        acquired_at: None,
        renewed_at: None,
        ..held("", 0, 4)
    };
    let mut test = Test::new();
    assert_eq!(test.begin(), Call::Get);
    let taken = Call::Update(held("me", 0, 5), "7".to_owned());
    assert_eq!(test.find(Some(empty), "7"), Next::Call(taken));
}

#[test]
fn a_lease_of_another_is_taken_when_it_was_seen_unchanged_for_its_duration() {
    let mut test = Test::new();
    // The times in the record are long past: only the time when this process saw it counts.
    let old = held("other", 0, 2);
    test.now += 1_000 * SECOND;
    test.begin();
    assert_eq!(test.find(Some(old.clone()), "1"), Next::Wait);
    test.now += 14 * SECOND;
    test.begin();
    assert_eq!(test.find(Some(old.clone()), "1"), Next::Wait);
    // A renewal begins the time again.
    let renewed = held("other", 3, 2);
    test.begin();
    assert_eq!(test.find(Some(renewed.clone()), "2"), Next::Wait);
    test.now += 14 * SECOND;
    test.begin();
    assert_eq!(test.find(Some(renewed.clone()), "2"), Next::Wait);
    assert_eq!(test.machine.holder(), Some("other"));
    test.now += SECOND;
    test.begin();
    let taken = Call::Update(held("me", 1_029, 3), "2".to_owned());
    assert_eq!(test.find(Some(renewed), "2"), Next::Call(taken));
}

#[test]
fn the_duration_in_the_lease_counts_not_the_own() {
    for (seconds, next_is_wait) in [(60, true), (5, false)] {
        let mut test = Test::new();
        let record = LeaseRecord {
            lease_duration: Some(seconds * SECOND),
            ..held("other", 0, 0)
        };
        test.begin();
        test.find(Some(record.clone()), "1");
        test.now += 20 * SECOND;
        test.begin();
        let next = test.find(Some(record), "1");
        assert_eq!(next == Next::Wait, next_is_wait, "{seconds} s");
    }
}

#[test]
fn the_leader_renews_without_reading() {
    let mut test = Test::new();
    test.lead();
    test.now += 2 * SECOND;
    let renewed = LeaseRecord {
        renewed_at: Some(wall(2 * SECOND)),
        ..held("me", 0, 0)
    };
    assert_eq!(test.begin(), Call::Update(renewed.clone(), "1".to_owned()));
    let sent = test.now;
    test.now += 3 * SECOND;
    let answer = Answer::Written(stored(&renewed, "2"));
    assert_eq!(test.machine.proceed(answer, sent, test.now()), Next::Wait);
    // The deadline counts from the begin of the renewal, not from its answer.
    assert_eq!(test.machine.leading_until, Some(sent + 10 * SECOND));
}

#[test]
fn after_a_conflict_the_leader_reads_and_renews_what_is_its_own() {
    let mut test = Test::new();
    let record = test.lead();
    test.now += 2 * SECOND;
    test.begin();
    assert_eq!(test.answer(Answer::Conflict), Next::Call(Call::Get));
    let next = test.find(Some(record), "5");
    let Next::Call(Call::Update(renewed, version)) = next else {
        panic!("it renews: {next:?}");
    };
    assert_eq!((renewed.transitions, version.as_str()), (0, "5"));
    assert_eq!(test.answer(Answer::Conflict), Next::Wait);
}

#[test]
fn after_a_lost_answer_the_leader_reads_first() {
    let mut test = Test::new();
    test.lead();
    test.now += 2 * SECOND;
    test.begin();
    assert_eq!(test.answer(Answer::Failed), Next::Wait);
    assert_eq!(test.begin(), Call::Get);
}

#[test]
fn a_leader_whose_lease_was_taken_or_freed_has_lost() {
    for holder in ["other", ""] {
        let mut test = Test::new();
        test.lead();
        test.begin();
        test.answer(Answer::Conflict);
        assert_eq!(test.find(Some(held(holder, 1, 1)), "9"), Next::Lost);
    }
}

#[test]
fn a_renewal_after_the_deadline_comes_too_late() {
    let mut test = Test::new();
    let record = test.lead();
    test.now += 9 * SECOND;
    test.begin();
    let sent = test.now;
    test.now += 2 * SECOND;
    let answer = Answer::Written(stored(&record, "2"));
    assert_eq!(test.machine.proceed(answer, sent, test.now()), Next::Lost);
    assert!(!test.machine.is_leading(test.now));
}

#[test]
fn a_lease_that_was_taken_too_long_ago_does_not_count() {
    let mut test = Test::new();
    test.begin();
    let Next::Call(Call::Create(record)) = test.find(None, "") else {
        panic!("it creates the lease");
    };
    let sent = test.now;
    test.now += 11 * SECOND;
    let answer = Answer::Written(stored(&record, "1"));
    assert_eq!(test.machine.proceed(answer, sent, test.now()), Next::Wait);
    assert_eq!(test.machine.leading_until, None);
    // The Lease is held by this candidate, so the next attempt renews it.
    assert!(matches!(test.begin(), Call::Update(..)));
}

#[test]
fn a_deleted_lease_counts_until_it_would_have_expired() {
    let mut test = Test::new();
    test.begin();
    test.find(Some(held("other", 0, 0)), "1");
    test.now += 14 * SECOND;
    test.begin();
    assert_eq!(test.find(None, ""), Next::Wait);
    test.now += SECOND;
    test.begin();
    let next = test.find(None, "");
    assert!(matches!(next, Next::Call(Call::Create(_))), "{next:?}");
}

#[test]
fn a_release_frees_only_what_is_its_own() {
    let freed = |test: &Test, transitions| LeaseRecord {
        lease_duration: Some(SECOND),
        ..held("", (test.now - test.origin).as_secs(), transitions)
    };
    let mut test = Test::new();
    let record = test.lead();
    test.machine.release();
    assert!(!test.machine.is_leading(test.now));
    let release = Call::Update(freed(&test, 0), "1".to_owned());
    assert_eq!(test.begin(), release);
    // A conflict may be due to a label, so the record is read.
    assert_eq!(test.answer(Answer::Conflict), Next::Call(Call::Get));
    let release = Call::Update(freed(&test, 0), "2".to_owned());
    assert_eq!(test.find(Some(record), "2"), Next::Call(release));
    let answer = Answer::Written(stored(&freed(&test, 0), "3"));
    assert_eq!(test.answer(answer), Next::Released);

    for found in [Some(held("other", 1, 1)), None] {
        let mut test = Test::new();
        test.lead();
        test.machine.release();
        test.begin();
        test.answer(Answer::Conflict);
        assert_eq!(test.find(found, "2"), Next::Released);
    }
}
