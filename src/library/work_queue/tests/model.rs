//! A random model: after any sequence of operations, the schedule hands out the keys that a simple
//! list of requests hands out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::support::ms;
use crate::work_queue::schedule::{Run, Schedule};
use crate::work_queue::{AddOptions, ItemExponentialFailure};

const AGEING: Duration = Duration::from_millis(7);

#[derive(Clone, Debug)]
enum Step {
    Add {
        key: u8,
        priority: i32,
        after: u64,
        is_rate_limited: bool,
    },
    Forget(u8),
    Pass(u64),
    Take,
    /// Ends the n-th of the present runs.
    Done(usize),
    ShutDown,
}

/// A requested run, as the documentation describes it.
#[derive(Clone, Debug)]
struct Request {
    priority: i32,
    wanted_at: Duration,
    backoff_until: Option<Duration>,
    order: usize,
}

#[derive(Default)]
struct Model {
    now: Duration,
    requests: BTreeMap<u8, Request>,
    running: Vec<u8>,
    failures: BTreeMap<u8, u32>,
    /// The running keys that were forgotten since they began to run.
    forgotten: BTreeSet<u8>,
    count: usize,
    is_shutting_down: bool,
    /// The number of the step at which each key was last added, and last began to run.
    added: BTreeMap<u8, usize>,
    began: BTreeMap<u8, usize>,
}

impl Request {
    fn due(&self) -> Duration {
        self.wanted_at.max(self.backoff_until.unwrap_or_default())
    }
}

impl Model {
    fn add(&mut self, key: u8, priority: i32, after: u64, is_rate_limited: bool) {
        if self.is_shutting_down {
            return;
        }
        let wanted_at = self.now + ms(after);
        self.count += 1;
        let order = self.count;
        let counts = !(self.forgotten.contains(&key) && self.requests.contains_key(&key));
        let request = self.requests.entry(key).or_insert(Request {
            priority,
            wanted_at,
            backoff_until: None,
            order,
        });
        request.priority = request.priority.max(priority);
        request.wanted_at = request.wanted_at.min(wanted_at);
        if is_rate_limited && counts && request.backoff_until.is_none() {
            let failures = self.failures.entry(key).or_default();
            request.backoff_until = Some(self.now + ms(10 * 2_u64.pow(*failures)).min(ms(100)));
            *failures += 1;
        }
    }

    fn forget(&mut self, key: u8) {
        self.failures.remove(&key);
        if self.running.contains(&key) {
            self.forgotten.insert(key);
        }
        if let Some(request) = self.requests.get_mut(&key) {
            request.backoff_until = None;
        }
    }

    fn ready(&self) -> impl Iterator<Item = (u8, &Request)> {
        let all = self.requests.iter().map(|(key, request)| (*key, request));
        all.filter(|(key, request)| !self.running.contains(key) && request.due() <= self.now)
    }

    /// Returns the key to run next: no other ready key has a higher priority and age.
    fn next(&self) -> Option<u8> {
        let place = |request: &Request| {
            let age = (self.now - request.due()).as_nanos() as i128;
            let priority = i128::from(request.priority) * AGEING.as_nanos() as i128;
            (-(age + priority), request.order)
        };
        let first = self.ready().min_by_key(|(_, request)| place(request));
        first.map(|(key, _)| key)
    }

    fn shut_down(&mut self) {
        self.is_shutting_down = true;
        self.drop_undue();
    }

    fn drop_undue(&mut self) {
        let (now, running) = (self.now, &self.running);
        self.requests
            .retain(|key, request| running.contains(key) || request.due() <= now);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let add = (0_u8..5, -3_i32..4, 0_u64..60, any::<bool>(), any::<bool>());
    prop_oneof![
        8 => add.prop_map(|(key, priority, after, is_delayed, is_rate_limited)| Step::Add {
            key,
            priority,
            after: if is_delayed { after } else { 0 },
            is_rate_limited,
        }),
        2 => (0_u8..5).prop_map(Step::Forget),
        4 => (0_u64..40).prop_map(Step::Pass),
        6 => Just(Step::Take),
        5 => (0_usize..5).prop_map(Step::Done),
    ]
}

struct Play {
    origin: Instant,
    schedule: Schedule<u8>,
    model: Model,
    runs: Vec<Run<u8>>,
    steps: usize,
}

impl Play {
    fn new() -> Self {
        let origin = Instant::now();
        let limiter = Box::new(ItemExponentialFailure::new(ms(10), ms(100)));
        Self {
            origin,
            schedule: Schedule::new(limiter, AGEING, origin),
            model: Model::default(),
            runs: Vec::new(),
            steps: 0,
        }
    }

    fn step(&mut self, step: Step) {
        self.steps += 1;
        let now = self.origin + self.model.now;
        match step {
            Step::Add {
                key,
                priority,
                after,
                is_rate_limited,
            } => {
                let options = AddOptions {
                    priority,
                    after: ms(after),
                    is_rate_limited,
                };
                let _ = self.schedule.add(key, options, now);
                self.model.add(key, priority, after, is_rate_limited);
                self.model.added.insert(key, self.steps);
            }
            Step::Forget(key) => {
                let _ = self.schedule.forget(&key, now);
                self.model.forget(key);
            }
            Step::Pass(time) => {
                self.model.now += ms(time);
            }
            Step::Take => {
                self.take();
            }
            Step::Done(number) if number < self.runs.len() => {
                let run = self.runs.remove(number);
                let _ = self.schedule.done(&run, now);
                self.model.running.retain(|key| *key != *run.key);
                self.model.forgotten.remove(&*run.key);
                if self.model.is_shutting_down {
                    self.model.drop_undue();
                }
            }
            Step::Done(_) => {}
            Step::ShutDown => {
                self.schedule.shut_down(now);
                self.model.shut_down();
            }
        }
        self.compare();
    }

    fn take(&mut self) -> bool {
        let now = self.origin + self.model.now;
        let expected = self.model.next();
        self.schedule.advance(now);
        let run = self.schedule.take(now);
        assert_eq!(run.as_ref().map(|run| *run.key), expected);
        let Some(run) = run else {
            return false;
        };
        let key = *run.key;
        assert!(
            !self.model.running.contains(&key),
            "{key} runs twice at once"
        );
        let request = self.model.requests.remove(&key).expect("a requested run");
        assert_eq!(run.priority, request.priority);
        assert_eq!(run.waited, self.model.now - request.due());
        self.model.running.push(key);
        self.check_starvation(&request);
        self.model.began.insert(key, self.steps);
        self.runs.push(run);
        true
    }

    /// Checks that a key waits for a key of a higher priority only if that key was due at most the
    /// difference of priorities times the ageing later, and never for a key of a lower priority
    /// that was due later.
    fn check_starvation(&self, taken: &Request) {
        let nanoseconds = |duration: Duration| duration.as_nanos() as i128;
        for (key, waiting) in self.model.ready() {
            let difference = i128::from(taken.priority - waiting.priority);
            let limit = nanoseconds(waiting.due()) + difference * nanoseconds(AGEING);
            let due = nanoseconds(taken.due());
            assert!(due <= limit, "{key} waits {} ns too long", due - limit);
        }
    }

    fn compare(&mut self) {
        let now = self.origin + self.model.now;
        self.schedule.advance(now);
        assert_eq!(self.schedule.len(), self.model.ready().count());
        let waiting = self.model.requests.iter().filter(|(key, request)| {
            !self.model.running.contains(key) && request.due() > self.model.now
        });
        let next_due = waiting
            .map(|(_, request)| self.origin + request.due())
            .min();
        assert_eq!(self.schedule.next_due(), next_due);
        for key in 0..5 {
            let failures = self.model.failures.get(&key).copied().unwrap_or(0);
            assert_eq!(self.schedule.rate_limiter.num_requeues(&key), failures);
        }
    }

    /// Ends all runs and runs all keys, until nothing is left.
    fn finish(&mut self) {
        self.model.now += ms(1_000);
        loop {
            while !self.runs.is_empty() {
                self.step(Step::Done(0));
            }
            self.steps += 1;
            if !self.take() {
                break;
            }
        }
        assert!(self.schedule.is_drained());
        assert!(self.model.requests.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_schedule_equals_a_list_of_requests(
        steps in prop::collection::vec(step(), 0..150),
        shutdown in prop::option::of(0_usize..150),
    ) {
        let mut play = Play::new();
        for (number, step) in steps.into_iter().enumerate() {
            if shutdown == Some(number) {
                play.step(Step::ShutDown);
            }
            play.step(step);
        }
        play.finish();
        if !play.model.is_shutting_down {
            for (key, added) in &play.model.added {
                let began = play.model.began.get(key);
                assert!(began > Some(added), "key {key} was added after its last run");
            }
        }
    }
}
