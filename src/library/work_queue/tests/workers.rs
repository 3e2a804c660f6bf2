//! Concurrent workers: each request is answered by a run after it, and no key runs twice at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use super::support::ms;
use crate::work_queue::{AddOptions, Config, ItemExponentialFailure, WorkQueue};

/// One action of the producer, after a wait in milliseconds.
#[derive(Clone, Debug)]
struct Action {
    wait: u64,
    key: u8,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Add,
    AddAfter(u64),
    AddWithPriority(i32),
    ForgetAndAdd,
}

/// What the workers and the producer have done, in one order.
#[derive(Default)]
struct Record {
    count: usize,
    added: BTreeMap<u8, usize>,
    began: BTreeMap<u8, usize>,
    running: BTreeSet<u8>,
    /// The end of each key's backoff.
    backoff: BTreeMap<u8, Instant>,
    failures: usize,
}

impl Record {
    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }
}

fn action() -> impl Strategy<Value = Action> {
    let kind = prop_oneof![
        4 => Just(Kind::Add),
        3 => (0_u64..300).prop_map(Kind::AddAfter),
        3 => (-20_i32..20).prop_map(Kind::AddWithPriority),
        1 => Just(Kind::ForgetAndAdd),
    ];
    (0_u64..50, 0_u8..4, kind).prop_map(|(wait, key, kind)| Action { wait, key, kind })
}

async fn work(queue: WorkQueue<u8>, record: Arc<Mutex<Record>>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        // Workers give up waiting at random times, which must neither lose a key nor a wake.
        let patience = ms(random.random_range(1..200));
        let work = match timeout(patience, queue.get()).await {
            Err(_) => continue,
            Ok(None) => return,
            Ok(Some(work)) => work,
        };
        let key = *work.key();
        {
            let mut record = record.lock();
            assert!(record.running.insert(key), "{key} runs twice at once");
            let began = record.next();
            record.began.insert(key, began);
            let backoff = record.backoff.remove(&key);
            assert!(backoff <= Some(Instant::now()), "{key} ran in backoff");
        }
        sleep(ms(random.random_range(0..30))).await;
        let mut record = record.lock();
        record.running.remove(&key);
        match record.failures.checked_sub(1) {
            Some(left) if random.random_bool(0.4) => {
                record.failures = left;
                queue.add_rate_limited(key);
                // Zero if the key was forgotten and added while it ran.
                if let Some(doublings) = queue.num_requeues(&key).checked_sub(1) {
                    let backoff = ms(10) * 2_u32.pow(doublings);
                    let end = Instant::now() + backoff.min(ms(500));
                    record.backoff.insert(key, end);
                }
                let added = record.next();
                record.added.insert(key, added);
            }
            _ => queue.forget(&key),
        }
        drop(work);
    }
}

async fn play(actions: Vec<Action>, workers: usize, seed: u64) {
    let queue = WorkQueue::new(Config {
        rate_limiter: Box::new(ItemExponentialFailure::new(ms(10), ms(500))),
        ..Config::default()
    });
    let record = Arc::new(Mutex::new(Record {
        failures: 20,
        ..Record::default()
    }));
    let tasks: Vec<_> = (0..workers as u64)
        .map(|n| tokio::spawn(work(queue.clone(), record.clone(), seed.wrapping_add(n))))
        .collect();
    for Action { wait, key, kind } in actions {
        sleep(ms(wait)).await;
        let mut record = record.lock();
        let added = record.next();
        record.added.insert(key, added);
        match kind {
            Kind::Add => queue.add(key),
            Kind::AddAfter(delay) => queue.add_after(key, ms(delay)),
            Kind::AddWithPriority(priority) => queue.add_with(
                key,
                AddOptions {
                    priority,
                    ..AddOptions::default()
                },
            ),
            Kind::ForgetAndAdd => {
                record.backoff.remove(&key);
                queue.forget(&key);
                queue.add(key);
            }
        }
    }
    // Longer than all runs and backoffs together. The clock is paused.
    sleep(Duration::from_secs(60)).await;
    {
        let record = record.lock();
        assert!(record.running.is_empty());
        for (key, added) in &record.added {
            assert!(record.began.get(key) > Some(added), "{key} was not run");
        }
    }
    let drain = timeout(ms(1), queue.shut_down_with_drain()).await;
    assert!(drain.is_ok(), "an idle queue has nothing to drain");
    for task in tasks {
        task.await.expect("a worker without a panic");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn each_request_is_answered_by_one_run_at_a_time(
        actions in prop::collection::vec(action(), 0..60),
        workers in 1_usize..5,
        seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(play(actions, workers, seed));
    }
}

/// Producers and workers on several threads. Each worker adds each key again, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_added_from_many_threads_all_run() {
    for with_drain in [false, true] {
        // A lost wake must fail the test, not make it wait for ever.
        let run = timeout(Duration::from_secs(120), run_from_many_threads(with_drain));
        assert!(run.await.is_ok(), "a key or a wake was lost");
    }
}

async fn run_from_many_threads(with_drain: bool) {
    const KEYS: usize = 500;
    let queue = WorkQueue::<usize>::new(Config::default());
    let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| 0.into()).collect());
    let is_running: Arc<Vec<AtomicBool>> = Arc::new((0..KEYS).map(|_| false.into()).collect());
    let total = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let (queue, runs, is_running) = (queue.clone(), runs.clone(), is_running.clone());
            let total = total.clone();
            tokio::spawn(async move {
                while let Some(work) = queue.get().await {
                    let key = *work.key();
                    assert!(!is_running[key].swap(true, Ordering::SeqCst));
                    if runs[key].fetch_add(1, Ordering::SeqCst) < 2 {
                        queue.add(key);
                    }
                    tokio::task::yield_now().await;
                    is_running[key].store(false, Ordering::SeqCst);
                    drop(work);
                    total.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..10)
        .map(|n| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for key in (n..KEYS).step_by(10) {
                    match key % 3 {
                        0 => queue.add_after(key, Duration::from_micros(key as u64)),
                        _ => queue.add(key),
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    while runs.iter().any(|runs| runs.load(Ordering::SeqCst) < 3) {
        tokio::task::yield_now().await;
    }
    if with_drain {
        queue.shut_down_with_drain().await
    } else {
        queue.shut_down()
    }
    queue.add(0);
    for worker in workers {
        worker.await.unwrap();
    }
    assert!(queue.is_empty());
    assert_eq!(total.load(Ordering::SeqCst), 3 * KEYS as u64);
}
