//! Measures the cost of one change that many watches with one selection receive:
//! `cargo bench --bench watch_fanout`.

mod watchers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use divan::Bencher;
use divan::counter::ItemsCount;
use kubefan::api::Selection;
use kubefan::cache::{Dispatcher, Reader, WatchFrom, WatchItem};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use watchers::{Pods, Watchers};

const COUNTS: [usize; 2] = [1_000, 5_000];

fn main() {
    divan::main();
}

/// Measures the writer, the wakes, and the polls of all streams. An item is a change in a stream.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 20)]
fn one_change(bencher: Bencher<'_, '_>, count: usize) {
    let mut pods = Pods::new(100);
    let all = (0..count).map(|_| Selection::default());
    let mut watchers = Watchers::open(&pods.reader, all);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        pods.change(0);
        assert_eq!(watchers.take_changes(), count);
    });
}

/// Applies sixteen changes before the streams are polled.
#[divan::bench(args = COUNTS, sample_count = 50, sample_size = 5)]
fn sixteen_changes(bencher: Bencher<'_, '_>, count: usize) {
    let mut pods = Pods::new(100);
    let all = (0..count).map(|_| Selection::default());
    let mut watchers = Watchers::open(&pods.reader, all);
    let items = ItemsCount::new(16 * count);
    bencher.counter(items).bench_local(|| {
        (0..16).for_each(|index| pods.change(index));
        assert_eq!(watchers.take_changes(), 16 * count);
    });
}

/// Tasks of a single-threaded runtime, each with a watch of all objects.
struct WatcherTasks {
    runtime: Runtime,
    count: usize,
    /// The number of tasks that have not received the last change yet.
    waiting: Arc<AtomicUsize>,
    all_took: Arc<Notify>,
}

impl WatcherTasks {
    fn spawn(reader: &Reader, count: usize, is_dispatched: bool) -> Self {
        let runtime = Builder::new_current_thread().build();
        let tasks = Self {
            runtime: runtime.expect("a runtime"),
            count,
            waiting: Arc::new(AtomicUsize::new(count)),
            all_took: Arc::new(Notify::new()),
        };
        if is_dispatched {
            let dispatcher = Dispatcher::install();
            tasks.runtime.spawn(dispatcher);
        }
        for _ in 0..count {
            let stream = reader.watch(WatchFrom::Tip, Arc::default());
            let mut stream = stream.expect("the cache is ready");
            let (waiting, all_took) = (tasks.waiting.clone(), tasks.all_took.clone());
            tasks.runtime.spawn(async move {
                while let Some(WatchItem::Change { .. }) = stream.next().await {
                    if waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
                        all_took.notify_one();
                    }
                }
            });
        }
        tasks
    }

    /// Runs the tasks until each has received one change.
    fn take_changes(&self) {
        self.runtime.block_on(self.all_took.notified());
        self.waiting.store(self.count, Ordering::Relaxed);
    }
}

/// Measures one change with tasks that a runtime schedules. The writer wakes each task, or only a
/// dispatcher that wakes the tasks.
#[divan::bench(args = [false, true], sample_count = 50, sample_size = 20)]
fn tasks(bencher: Bencher<'_, '_>, is_dispatched: bool) {
    let mut pods = Pods::new(100);
    let tasks = WatcherTasks::spawn(&pods.reader, 1_000, is_dispatched);
    pods.change(0);
    tasks.take_changes();
    bencher
        .counter(ItemsCount::new(1_000_usize))
        .bench_local(|| {
            pods.change(0);
            tasks.take_changes();
        });
}

/// Measures only the writer's part of a change with tasks: apply the change and wake the tasks or
/// the dispatcher.
#[divan::bench(args = [false, true], sample_count = 500, sample_size = 1)]
fn writer(bencher: Bencher<'_, '_>, is_dispatched: bool) {
    let mut pods = Pods::new(100);
    let tasks = WatcherTasks::spawn(&pods.reader, 1_000, is_dispatched);
    pods.change(0);
    bencher
        .with_inputs(|| tasks.take_changes())
        .bench_local_values(|()| pods.change(0));
}
