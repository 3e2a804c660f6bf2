//! Tests of when a reflector wakes the streams of its cache.

use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

use super::support::*;
use crate::cache::{Reader, WatchFrom};
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

/// Returns the applied version at the wake of a stream, when changes of the versions from 10 to
/// `last` arrive together.
async fn applied_at_wakes(last: u64) -> Vec<u64> {
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
    let changes = (10..=last).map(|version| modified("a", version));
    let items = [wait(1)].into_iter().chain(changes).chain([Item::Hang]);
    let answers = [watch_list(items)];
    let outcome = play_reflector(ReflectorConfig::default(), pending(), customize, answers).await;
    assert_eq!(outcome.applied.map(|applied| applied.0), Some(last));
    let at_wake = observed.into_inner().expect("the reflector has started");
    let versions = at_wake.versions.lock();
    versions.clone()
}

#[tokio::test(start_paused = true)]
async fn changes_that_arrive_together_wake_a_stream_once() {
    assert_eq!(applied_at_wakes(10).await, [10]);
    assert_eq!(applied_at_wakes(15).await, [15]);
    // A stream does not wait for more than 32 changes.
    assert_eq!(applied_at_wakes(90).await, [41]);
}
