//! Measures the operations of the work queue: `cargo bench --bench work_queue`. The times are
//! for one thousand keys.

use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use kubefan::work_queue::{AddOptions, Config, WorkQueue};
use tokio::runtime::{Builder, Runtime};

const KEYS: usize = 1_000;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

fn keys() -> Vec<String> {
    (0..KEYS)
        .map(|n| format!("namespace-{n:03}/pod-{n:05}"))
        .collect()
}

/// Runs the keys that are ready.
async fn run_all(queue: &WorkQueue<String>) {
    while !queue.is_empty() {
        drop(queue.get().await);
    }
}

/// Adds keys, and runs them, while `waiting` other keys wait.
#[divan::bench(args = [0, 50_000])]
fn add_get_done(bencher: Bencher<'_, '_>, waiting: usize) {
    let queue = WorkQueue::new(Config::default());
    for n in 0..waiting {
        queue.add_after(format!("waiting-{n}"), Duration::from_secs(10_000));
    }
    let runtime = runtime();
    bencher
        .counter(ItemsCount::new(KEYS))
        .with_inputs(keys)
        .bench_local_values(|keys| {
            for key in keys {
                queue.add(key);
            }
            runtime.block_on(run_all(&queue));
        });
}

/// Adds keys that are ready already.
#[divan::bench]
fn add_again(bencher: Bencher<'_, '_>) {
    let queue = WorkQueue::new(Config::default());
    keys().into_iter().for_each(|key| queue.add(key));
    bencher
        .counter(ItemsCount::new(KEYS))
        .with_inputs(keys)
        .bench_local_values(|keys| {
            for key in keys {
                queue.add(key);
            }
        });
}

/// Adds keys with ten priorities, and runs them.
#[divan::bench]
fn with_priorities(bencher: Bencher<'_, '_>) {
    let queue = WorkQueue::new(Config::default());
    let runtime = runtime();
    bencher
        .counter(ItemsCount::new(KEYS))
        .with_inputs(keys)
        .bench_local_values(|keys| {
            for (n, key) in keys.into_iter().enumerate() {
                let options = AddOptions {
                    priority: (n % 10) as i32,
                    ..AddOptions::default()
                };
                queue.add_with(key, options);
            }
            runtime.block_on(run_all(&queue));
        });
}

/// Puts keys in backoff, and forgets them, which makes them ready.
#[divan::bench]
fn fail_and_forget(bencher: Bencher<'_, '_>) {
    let queue = WorkQueue::new(Config::default());
    let runtime = runtime();
    bencher
        .counter(ItemsCount::new(KEYS))
        .with_inputs(keys)
        .bench_local_values(|keys| {
            for key in &keys {
                queue.add_rate_limited(key.clone());
            }
            for key in &keys {
                queue.forget(key);
            }
            runtime.block_on(run_all(&queue));
        });
}

/// Runs each key in a worker of another task. The next key is added when the previous one is done.
#[divan::bench]
fn one_worker_waits(bencher: Bencher<'_, '_>) {
    let runtime = runtime();
    bencher
        .counter(ItemsCount::new(KEYS))
        .with_inputs(keys)
        .bench_local_values(|keys| {
            runtime.block_on(async {
                let queue = WorkQueue::new(Config::default());
                let worker = {
                    let queue = queue.clone();
                    async move {
                        while let Some(work) = queue.get().await {
                            drop(work);
                        }
                    }
                };
                let worker = runtime.spawn(worker);
                for key in keys {
                    queue.add(key);
                    tokio::task::yield_now().await;
                }
                queue.shut_down();
                worker.await.expect("the worker does not panic");
            });
        });
}
