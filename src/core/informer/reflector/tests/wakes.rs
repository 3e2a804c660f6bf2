//! Tests of when a reflector wakes the streams of its cache.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::support::*;
use crate::cache::{Reader, WatchFrom};
use crate::informer::reflector::machine::is_wake_due;
use crate::informer::{Reflector, ReflectorConfig};

/// Records the applied version at each wake.
struct AppliedAtWake {
    reader: Reader,
    versions: Mutex<Vec<u64>>,
}

impl Wake for AppliedAtWake {
    fn wake(self: Arc<Self>) {
        let applied = self.reader.stats().applied.unwrap_or_default();
        self.versions.lock().push(applied.0);
    }
}

/// Waits in a stream with the waker `at_wake`, which is woken once.
async fn wait_in_a_stream(at_wake: Arc<AppliedAtWake>) {
    let reader = &at_wake.reader;
    assert!(reader.ready().await);
    let mut stream = reader.watch(WatchFrom::Tip, Arc::default()).unwrap();
    let waker = Waker::from(Arc::clone(&at_wake));
    let polled = stream.poll_next(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    pending::<()>().await;
}

/// Returns the applied version at the wake of a stream that waits when a watch begins with `items`.
/// The last version that is applied is `last`. The requests after the watch get no answer.
async fn applied_at_wakes_of(items: impl IntoIterator<Item = Item>, last: u64) -> Vec<u64> {
    let observed = Mutex::new(None);
    let customize = |reflector: Reflector<Script>| {
        let at_wake = Arc::new(AppliedAtWake {
            reader: reflector.machine.writer.reader().clone(),
            versions: Mutex::default(),
        });
        *observed.lock() = Some(Arc::clone(&at_wake));
        tokio::spawn(wait_in_a_stream(at_wake));
        reflector
    };
    let items = [wait(1)].into_iter().chain(items);
    let answers = [watch_list(items), Answer::Never];
    let outcome = play_reflector(ReflectorConfig::default(), pending(), customize, answers).await;
    assert_eq!(outcome.applied.map(|applied| applied.0), Some(last));
    let at_wake = observed.into_inner().expect("the reflector has started");
    let versions = at_wake.versions.lock();
    versions.clone()
}

/// Returns the applied version at the wake of a stream, when changes of the versions from 10 to
/// `last` arrive together.
async fn applied_at_wakes(last: u64) -> Vec<u64> {
    let changes = (10..=last).map(|version| modified("a", version));
    applied_at_wakes_of(changes.chain([wait(1)]), last).await
}

#[tokio::test(start_paused = true)]
async fn changes_that_arrive_together_wake_a_stream_once() {
    assert_eq!(applied_at_wakes(10).await, [10]);
    assert_eq!(applied_at_wakes(15).await, [15]);
    // A stream does not wait for more than 32 changes.
    assert_eq!(applied_at_wakes(90).await, [41]);
}

/// The requests after the watch get no answer, so nothing later wakes the stream.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_wakes_for_its_last_changes() {
    for end in [None, Some(cut()), Some(error_frame(500))] {
        let items = [modified("a", 10)].into_iter().chain(end);
        assert_eq!(applied_at_wakes_of(items, 10).await, [10]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_requested_relist_waits_for_no_more_changes() {
    let items = [
        Item::RelistRequest,
        modified("a", 10),
        modified("a", 11),
        Item::Hang,
    ];
    assert_eq!(applied_at_wakes_of(items, 10).await, [10]);
}

#[test]
fn a_wake_is_due_by_number_and_by_time() {
    let short = Duration::from_micros(999);
    let long = Duration::from_millis(1);
    for (unwoken, delay, is_due) in [
        (0, Duration::ZERO, false),
        (31, short, false),
        (32, Duration::ZERO, true),
        (2, long, true),
    ] {
        assert_eq!(is_wake_due(unwoken, delay), is_due, "{unwoken} {delay:?}");
    }
}
