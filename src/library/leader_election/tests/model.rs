//! A random model of several candidates: messages are late or lost, processes pause and die, and
//! clocks run at different speeds. There are never two leaders.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use crate::leader_election::machine::{Answer, Call, Machine, Next, Now};
use crate::leader_election::{Config, LeaseRecord, Stored};

/// Milliseconds of the model's clock. The candidates' clocks are relative to it.
type Time = u64;

const CALL_LIMIT: Time = 5_000;
const RETRY: Time = 2_000;
/// The end of the faults, and of the model.
const FAULTS_END: Time = 600_000;
const END: Time = FAULTS_END + 60_000;

struct World {
    random: StdRng,
    origin: Instant,
    now: Time,
    server: Option<(LeaseRecord, u64)>,
    version: u64,
    candidates: Vec<Candidate>,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    /// How often the leader has changed, to detect a model without any leader.
    leaders: usize,
    two_leaders: Option<Time>,
}

struct Candidate {
    machine: Machine,
    /// How fast the clock runs.
    speed: f64,
    /// The number of the awaited call; answers to other calls are ignored.
    awaited: u64,
    lives: u64,
    was_leading: bool,
}

enum Event {
    Attempt(usize, u64),
    /// A call reaches the server.
    Arrives(Sent),
    /// An answer reaches the candidate, or its time limit is over.
    Answered(Sent, Answer),
    /// Another process replaces this one.
    Restart(usize),
    Release(usize),
}

#[derive(Clone)]
struct Sent {
    candidate: usize,
    number: u64,
    at: Instant,
    call: Call,
}

impl World {
    fn new(seed: u64, speeds: &[f64]) -> Self {
        let mut world = Self {
            random: StdRng::seed_from_u64(seed),
            origin: Instant::now(),
            now: 0,
            server: None,
            version: 0,
            candidates: Vec::new(),
            events: BTreeMap::new(),
            next_event: 0,
            leaders: 0,
            two_leaders: None,
        };
        for (index, speed) in speeds.iter().enumerate() {
            world.candidates.push(Candidate {
                machine: machine(index, 0),
                speed: *speed,
                awaited: 0,
                lives: 0,
                was_leading: false,
            });
            let at = world.random.random_range(0..RETRY);
            world.add(at, Event::Attempt(index, 0));
        }
        for _ in 0..12 {
            let (at, index) = world.moment();
            world.add(at, Event::Restart(index));
            let (at, index) = world.moment();
            world.add(at, Event::Release(index));
        }
        world
    }

    /// Returns a random time of the faults, and a random candidate.
    fn moment(&mut self) -> (Time, usize) {
        let index = self.random.random_range(0..self.candidates.len());
        (self.random.random_range(0..FAULTS_END), index)
    }

    fn add(&mut self, at: Time, event: Event) {
        self.next_event += 1;
        self.events.insert((at, self.next_event), event);
    }

    /// Returns the time of a candidate's clock.
    fn clock(&self, index: usize) -> Now {
        let elapsed = (self.now as f64 * self.candidates[index].speed) as u64;
        let since = i64::try_from(elapsed).expect("a short model");
        Now {
            instant: self.origin + Duration::from_millis(elapsed),
            wall: Timestamp::from_millisecond(since).expect("a time"),
        }
    }

    /// Converts `milliseconds` of a candidate's clock to the model's time.
    fn of_clock(&self, index: usize, milliseconds: Time) -> Time {
        (milliseconds as f64 / self.candidates[index].speed) as Time
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > END {
                return;
            }
            self.now = at;
            match event {
                Event::Attempt(index, life) => self.attempt(index, life),
                Event::Arrives(sent) => self.arrives(sent),
                Event::Answered(sent, answer) => self.answered(&sent, answer),
                Event::Restart(index) => self.restart(index),
                Event::Release(index) => self.release(index),
            }
            self.check();
        }
    }

    fn check(&mut self) {
        let mut leaders = 0;
        for index in 0..self.candidates.len() {
            let now = self.clock(index).instant;
            let candidate = &mut self.candidates[index];
            let is_leading = candidate.machine.is_leading(now);
            leaders += usize::from(is_leading);
            self.leaders += usize::from(is_leading && !candidate.was_leading);
            candidate.was_leading = is_leading;
        }
        if leaders > 1 {
            self.two_leaders.get_or_insert(self.now);
        }
    }

    fn attempt(&mut self, index: usize, life: u64) {
        if self.candidates[index].lives != life {
            return;
        }
        let now = self.clock(index);
        let machine = &mut self.candidates[index].machine;
        let has_expired = machine
            .leading_until
            .is_some_and(|until| until <= now.instant);
        if has_expired {
            return self.restart(index);
        }
        let call = machine.begin(now);
        self.send(index, call);
    }

    fn send(&mut self, candidate: usize, call: Call) {
        let at = self.clock(candidate).instant;
        self.next_event += 1;
        let number = self.next_event;
        self.candidates[candidate].awaited = number;
        let sent = Sent {
            candidate,
            number,
            at,
            call,
        };
        let limit = self.now + self.of_clock(candidate, CALL_LIMIT);
        self.add(limit, Event::Answered(sent.clone(), Answer::Failed));
        if let Some(delay) = self.delay() {
            self.add(self.now + delay, Event::Arrives(sent));
        }
    }

    /// Returns how long a message or a process takes; `None` if the message is lost.
    fn delay(&mut self) -> Option<Time> {
        if self.now >= FAULTS_END {
            return Some(10);
        }
        match self.random.random_range(0..10) {
            0 => None,
            1 | 2 => Some(self.random.random_range(0..30_000)),
            _ => Some(self.random.random_range(0..200)),
        }
    }

    fn arrives(&mut self, sent: Sent) {
        let answer = match &sent.call {
            Call::Get => Answer::Found(self.server.as_ref().map(stored)),
            Call::Create(_) if self.server.is_some() => Answer::Conflict,
            Call::Create(record) => self.write(record.clone()),
            Call::Update(record, version) => match &self.server {
                Some((_, current)) if current.to_string() == *version => self.write(record.clone()),
                _ => Answer::Conflict,
            },
        };
        if let Some(delay) = self.delay() {
            self.add(self.now + delay, Event::Answered(sent, answer));
        }
    }

    fn write(&mut self, record: LeaseRecord) -> Answer {
        self.version += 1;
        let written = (record, self.version);
        let answer = Answer::Written(stored(&written));
        self.server = Some(written);
        answer
    }

    fn answered(&mut self, sent: &Sent, answer: Answer) {
        let index = sent.candidate;
        if self.candidates[index].awaited != sent.number {
            return;
        }
        self.candidates[index].awaited = 0;
        let now = self.clock(index);
        let machine = &mut self.candidates[index].machine;
        match machine.proceed(answer, sent.at, now) {
            Next::Call(call) => self.send(index, call),
            Next::Lost | Next::Released => self.restart(index),
            Next::Wait => {
                let pause = match machine.leading_until {
                    Some(_) => RETRY,
                    None => RETRY + self.random.random_range(0..RETRY * 12 / 10),
                };
                // A paused process comes late.
                let pause = match self.random.random_range(0..20) {
                    0 if self.now < FAULTS_END => pause + self.random.random_range(0..20_000),
                    _ => pause,
                };
                let at = self.now + self.of_clock(index, pause);
                let life = self.candidates[index].lives;
                self.add(at, Event::Attempt(index, life));
            }
        }
    }

    fn restart(&mut self, index: usize) {
        let candidate = &mut self.candidates[index];
        candidate.lives += 1;
        candidate.awaited = 0;
        candidate.machine = machine(index, candidate.lives);
        let life = candidate.lives;
        let pause = self.random.random_range(0..3_000);
        self.add(self.now + pause, Event::Attempt(index, life));
    }

    /// Makes the candidate give the Lease back in its next attempts, whatever is in flight.
    fn release(&mut self, index: usize) {
        self.candidates[index].machine.release();
    }
}

fn stored((record, version): &(LeaseRecord, u64)) -> Stored {
    Stored {
        record: record.clone(),
        version: version.to_string(),
    }
}

/// Returns the machine of a process. Each process has a different name.
fn machine(index: usize, life: u64) -> Machine {
    Machine::new(Config {
        identity: format!("candidate-{index}-{life}"),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        metrics: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn there_are_never_two_leaders(
        seed in any::<u64>(),
        // The fastest clock runs 1.49 times as fast as the slowest.
        speeds in prop::collection::vec(0.82_f64..1.22, 2..=3),
    ) {
        let mut world = World::new(seed, &speeds);
        world.run();
        prop_assert_eq!(world.two_leaders, None);
        // The faults are over, so there is a leader again.
        let leaders = world.candidates.iter().filter(|candidate| candidate.was_leading);
        prop_assert_eq!(leaders.count(), 1);
        prop_assert!(world.leaders > 1, "the leader changed {} times", world.leaders);
    }
}

#[test]
fn the_model_finds_two_leaders_if_clocks_differ_too_much() {
    let found = |seed| {
        let mut world = World::new(seed, &[0.5, 1.0, 1.0]);
        world.run();
        world.two_leaders.is_some()
    };
    assert!((0..50).any(found));
}
