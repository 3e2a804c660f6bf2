//! The classic controller on a fake source, in paused time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::{Object, ObjectKey, Status};
use kubefan_core::informer::ReflectorEnd;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::delta_fifo::{Config, Controller, Delta, Deltas, ObjectFifo, Process};
use crate::fake_source::{FakeSource, Request};

fn object(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}})
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("default"), name)
}

/// The lines of what a controller processed, such as `Added a@2`, with a mark for
/// objects of the first list.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    changed: Arc<Notify>,
}

impl Log {
    fn record(&self, deltas: &Deltas<Arc<Object>>, is_initial: bool) {
        for delta in deltas {
            self.lines.lock().push(line(delta, is_initial));
        }
        self.changed.notify_one();
    }

    /// Waits until `count` more lines are recorded, and returns them.
    async fn next(&self, count: usize) -> Vec<String> {
        loop {
            {
                let mut lines = self.lines.lock();
                if lines.len() >= count {
                    return lines.drain(..).collect();
                }
            }
            self.changed.notified().await;
        }
    }
}

fn line(delta: &Delta<Arc<Object>>, is_initial: bool) -> String {
    let word = match delta {
        Delta::Added(_) => "added",
        Delta::Updated(_) => "updated",
        Delta::Replaced(_) => "replaced",
        Delta::Sync(_) => "sync",
        Delta::Deleted(_) => "deleted",
        Delta::DeletedFinalStateUnknown(_) => "vanished",
    };
    let object = delta.object();
    let mark = if is_initial { " initially" } else { "" };
    format!(
        "{word} {}@{}{mark}",
        object.key.name(),
        object.resource_version
    )
}

/// A running controller. Its task ends with the runtime of the test.
struct Running {
    source: FakeSource,
    queue: Arc<ObjectFifo>,
    log: Log,
    run: JoinHandle<ReflectorEnd>,
}

async fn start(source: FakeSource, config: Config) -> Running {
    let (queue, log) = (Arc::new(ObjectFifo::of_objects()), Log::default());
    let process = {
        let log = log.clone();
        move |deltas: &Deltas<Arc<Object>>, is_initial: bool| {
            log.record(deltas, is_initial);
            Ok::<(), Infallible>(())
        }
    };
    let controller = Controller::new(source.clone(), queue.clone(), process, config);
    let run = tokio::spawn(controller.run(pending()));
    queue.synced().await;
    Running {
        source,
        queue,
        log,
        run,
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_list_and_the_changes_after_it_are_processed() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    source.add(&object("b")).unwrap();
    let Running {
        source, queue, log, ..
    } = start(source, Config::default()).await;
    let expected = ["replaced a@2 initially", "replaced b@3 initially"];
    assert_eq!(log.next(2).await, expected);
    source.add(&object("c")).unwrap();
    assert_eq!(log.next(1).await, ["added c@4"]);
    source.modify(&object("a")).unwrap();
    assert_eq!(log.next(1).await, ["updated a@5"]);
    source.delete(&key("b")).unwrap();
    assert_eq!(log.next(1).await, ["deleted b@6"]);
    let mut known: Vec<_> = queue.all_known().iter().map(|o| o.key.clone()).collect();
    known.sort_unstable();
    assert_eq!(known, [key("a"), key("c")]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_causes_deltas_only_of_what_changed() {
    let source = FakeSource::new();
    for name in ["a", "b", "c"] {
        source.add(&object(name)).unwrap();
    }
    let Running { source, log, .. } = start(source, Config::default()).await;
    log.next(3).await;
    source.until(|source| source.watchers() == 1).await;
    // The watch misses two changes, but is resumed.
    source.hold();
    source.modify(&object("a")).unwrap();
    source.delete(&key("b")).unwrap();
    source.break_watches();
    source.release();
    assert_eq!(log.next(2).await, ["updated a@5", "deleted b@6"]);
    // The history with two more changes is gone, so a list must show them.
    source.until(|source| source.watchers() == 1).await;
    source.hold();
    source.modify(&object("a")).unwrap();
    source.delete(&key("c")).unwrap();
    source.add(&object("d")).unwrap();
    source.expire();
    source.release();
    let mut lines = log.next(3).await;
    lines.sort_unstable();
    assert_eq!(lines, ["added d@9", "updated a@7", "vanished c@4"]);
}

#[tokio::test(start_paused = true)]
async fn all_objects_are_processed_again_in_each_resync_period() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    let config = Config {
        full_resync_period: Some(Duration::from_secs(30)),
        ..Config::default()
    };
    let started = Instant::now();
    let Running { log, .. } = start(source, config).await;
    assert_eq!(log.next(1).await, ["replaced a@2 initially"]);
    for period in 1..4 {
        assert_eq!(log.next(1).await, ["sync a@2"]);
        assert_eq!(started.elapsed(), Duration::from_secs(30 * period));
    }
}

/// Fails a number of times for each object, and records when it is called.
struct Failing {
    failures: BTreeMap<String, u32>,
    started: Instant,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process for Failing {
    type Error = String;

    async fn process(
        &mut self,
        deltas: &Deltas<Arc<Object>>,
        is_in_initial_list: bool,
    ) -> Result<(), String> {
        let lines: Vec<_> = deltas.iter().map(|d| line(d, is_in_initial_list)).collect();
        let at = self.started.elapsed().as_millis();
        self.log
            .lock()
            .push(format!("{at} ms: {}", lines.join(", ")));
        let name = deltas.newest().object().key.name();
        match self.failures.get_mut(name) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err("a planned failure".to_owned())
            }
            _ => Ok(()),
        }
    }
}

async fn run_failing(retry_on_error: bool) -> Vec<String> {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    source.add(&object("b")).unwrap();
    let log = Arc::default();
    let process = Failing {
        failures: BTreeMap::from([("a".to_owned(), 3)]),
        started: Instant::now(),
        log: Arc::clone(&log),
    };
    let queue = Arc::new(ObjectFifo::of_objects());
    let config = Config {
        retry_on_error,
        ..Config::default()
    };
    let controller = Controller::new(source.clone(), queue.clone(), process, config);
    let change = async move {
        sleep(Duration::from_millis(10)).await;
        source.modify(&object("a")).unwrap();
        sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(controller.run(change).await, ReflectorEnd::Stopped);
    assert!(queue.known(&key("a")).is_some());
    std::mem::take(&mut *log.lock())
}

#[tokio::test(start_paused = true)]
async fn failed_changes_are_retried_with_a_backoff_if_requested() {
    let expected = [
        "0 ms: replaced a@2 initially",
        "0 ms: replaced b@3 initially",
        "5 ms: replaced a@2",
        "15 ms: replaced a@2, updated a@4",
        "35 ms: replaced a@2, updated a@4",
    ];
    // A timer of tokio may be a millisecond late, so the times are compared with this tolerance.
    let lines = run_failing(true).await;
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        let (at, text) = line.split_once(" ms: ").unwrap();
        let (expected_at, expected_text) = expected.split_once(" ms: ").unwrap();
        let late = at.parse::<u64>().unwrap() - expected_at.parse::<u64>().unwrap();
        assert!(late <= 3, "{line}, expected {expected}");
        assert_eq!(text, expected_text);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_changes_are_only_logged_by_default() {
    let expected = [
        "0 ms: replaced a@2 initially",
        "0 ms: replaced b@3 initially",
    ];
    let lines = run_failing(false).await;
    assert_eq!(lines[..2], expected);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[2].ends_with("updated a@4"), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_the_rest_in_the_queue() {
    let source = FakeSource::new();
    for name in ["a", "b", "c"] {
        source.add(&object(name)).unwrap();
    }
    let queue = Arc::new(ObjectFifo::of_objects());
    let stop = Arc::new(Notify::new());
    struct Slow(Arc<Notify>);
    impl Process for Slow {
        type Error = Infallible;

        async fn process(&mut self, _: &Deltas<Arc<Object>>, _: bool) -> Result<(), Infallible> {
            self.0.notify_one();
            sleep(Duration::from_secs(5)).await;
            Ok(())
        }
    }
    let process = Slow(Arc::clone(&stop));
    let controller = Controller::new(source.clone(), queue.clone(), process, Config::default());
    let started = Instant::now();
    let end = controller.run(async move { stop.notified().await }).await;
    assert_eq!(end, ReflectorEnd::Stopped);
    assert_eq!(started.elapsed(), Duration::from_secs(5), "a was finished");
    assert!(queue.known(&key("a")).is_some());
    assert_eq!(queue.len(), 2);
    assert_eq!(source.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_final_refusal_ends_the_controller_when_the_queue_is_empty() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    let Running {
        source, log, run, ..
    } = start(source, Config::default()).await;
    log.next(1).await;
    source.fail(Status::failure(404, "NotFound", "the resource is gone"));
    source.delete(&key("a")).unwrap();
    source.expire();
    let end = run.await.unwrap();
    assert!(matches!(end, ReflectorEnd::Gone(_)), "{end:?}");
    let calls = source.requests();
    assert!(matches!(
        calls.last(),
        Some(Request::List(_) | Request::Watch(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_processing_ends_the_run() {
    let source = FakeSource::new();
    source.add(&object("a")).unwrap();
    let queue = Arc::new(ObjectFifo::of_objects());
    let process =
        |_: &Deltas<Arc<Object>>, _: bool| -> Result<(), Infallible> { panic!("a planned panic") };
    let controller = Controller::new(source, queue.clone(), process, Config::default());
    let run = tokio::spawn(controller.run(pending()));
    assert!(run.await.unwrap_err().is_panic());
    assert_eq!(queue.len(), 1, "the changes are queued again");
}
