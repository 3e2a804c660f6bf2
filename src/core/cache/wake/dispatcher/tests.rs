//! Tests of wakes through dispatchers, with runtimes on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Wake;
use std::thread;
use std::thread::ThreadId;

use super::*;
use crate::api::{EventType, ResourceVersion};
use crate::cache::tests::support::{config, everything, object, with_label};
use crate::cache::{Reader, WatchFrom, WatchItem, WatchStream, Writer, cache};

const WRITES: u64 = 500;
const STREAMS: usize = 20;

/// Forwards a wake, and counts it in `foreign` if it was called on another thread than `owner`.
struct ThreadCheckWaker {
    inner: Waker,
    owner: ThreadId,
    foreign: Arc<AtomicUsize>,
}

impl Wake for ThreadCheckWaker {
    fn wake(self: Arc<Self>) {
        if thread::current().id() != self.owner {
            self.foreign.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.wake_by_ref();
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A ready cache without objects, at resource version 10.
fn ready() -> (Writer, Reader) {
    let (mut writer, reader) = cache(config());
    writer.replace(writer.relist(), ResourceVersion(10));
    (writer, reader)
}

fn write(writer: &mut Writer, version: u64) {
    let written = object("a/x", "u", version, "web");
    writer.apply(EventType::Modified, written, None).unwrap();
}

/// Reads all events of `stream` until the cache is closed, and returns their number. Adds one to
/// `waiting` when the stream waits for the first time.
async fn count_all(
    mut stream: WatchStream,
    foreign: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
) -> u64 {
    let owner = thread::current().id();
    let mut seen = 10;
    let mut has_waited = false;
    loop {
        let item = std::future::poll_fn(|cx| {
            let thread_check = ThreadCheckWaker {
                inner: cx.waker().clone(),
                owner,
                foreign: Arc::clone(&foreign),
            };
            let waker = Waker::from(Arc::new(thread_check));
            let polled = stream.poll_next(&mut Context::from_waker(&waker));
            if polled.is_pending() && !std::mem::replace(&mut has_waited, true) {
                waiting.fetch_add(1, Ordering::Relaxed);
            }
            polled
        });
        match item.await {
            Some(WatchItem::Change { event, .. }) => {
                seen += 1;
                assert_eq!(event.resource_version, ResourceVersion(seen));
            }
            None => return seen - 10,
            other => panic!("{other:?}"),
        }
    }
}

/// Starts a thread with a runtime and `STREAMS` streams. Sends to `open` when all streams wait.
/// Returns the numbers of events that the streams got.
fn serve(
    reader: Reader,
    is_dispatched: bool,
    foreign: Arc<AtomicUsize>,
    open: mpsc::Sender<()>,
) -> thread::JoinHandle<Vec<u64>> {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        if is_dispatched {
            let dispatcher = Dispatcher::install();
            runtime.spawn(dispatcher);
        }
        runtime.block_on(async {
            let watch = || reader.watch(WatchFrom::Tip, everything()).unwrap();
            let waiting = Arc::new(AtomicUsize::new(0));
            let count = || count_all(watch(), Arc::clone(&foreign), Arc::clone(&waiting));
            let streams: Vec<_> = (0..STREAMS).map(|_| runtime.spawn(count())).collect();
            while waiting.load(Ordering::Relaxed) < STREAMS {
                tokio::task::yield_now().await;
            }
            open.send(()).unwrap();
            let mut counts = Vec::new();
            for stream in streams {
                counts.push(stream.await.unwrap());
            }
            counts
        })
    })
}

/// Runs streams on two threads, and returns how often one was woken from another thread.
fn foreign_wakes(is_dispatched: bool) -> usize {
    let (mut writer, reader) = ready();
    let foreign = Arc::new(AtomicUsize::new(0));
    let (open, opened) = mpsc::channel();
    let threads: Vec<_> = (0..2)
        .map(|_| serve(reader.clone(), is_dispatched, foreign.clone(), open.clone()))
        .collect();
    threads.iter().for_each(|_| opened.recv().unwrap());
    (11..=10 + WRITES).for_each(|version| write(&mut writer, version));
    writer.close();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [WRITES; STREAMS]);
    }
    foreign.load(Ordering::Relaxed)
}

#[test]
fn streams_are_woken_on_their_own_thread() {
    assert_eq!(foreign_wakes(true), 0);
    assert!(foreign_wakes(false) >= 2 * STREAMS, "without a dispatcher");
}

#[test]
fn the_writer_wakes_a_dispatcher_once_for_all_its_streams() {
    let dispatches = Arc::new(Count::default());
    let wakes = Arc::new(Count::default());
    let (mut writer, reader) = ready();
    let mut dispatcher = std::pin::pin!(Dispatcher::install());
    let waker = Waker::from(dispatches.clone());
    let mut dispatch = || {
        let polled = dispatcher.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    };
    dispatch();
    let waker = Waker::from(wakes.clone());
    let mut streams: Vec<_> = ["web", "db", "web"]
        .map(|app| {
            let selection = Arc::new(with_label(app));
            reader.watch(WatchFrom::Tip, selection).unwrap()
        })
        .into();
    let mut poll_all = || {
        streams
            .iter_mut()
            .map(|stream| {
                let mut items = 0;
                while stream
                    .poll_next(&mut Context::from_waker(&waker))
                    .is_ready()
                {
                    items += 1;
                }
                items
            })
            .collect::<Vec<_>>()
    };
    let counts = || (dispatches.get(), wakes.get());
    poll_all();
    write(&mut writer, 11);
    assert_eq!(counts(), (1, 0), "only the dispatcher was woken");
    write(&mut writer, 12);
    assert_eq!(counts(), (1, 0), "the dispatcher is woken once");
    dispatch();
    assert_eq!(counts(), (1, 2), "the streams concerned were woken");
    assert_eq!(poll_all(), [2, 0, 2]);
    let elsewhere = object("a/y", "u", 13, "cache");
    writer.apply(EventType::Added, elsewhere, None).unwrap();
    writer.bookmark(ResourceVersion(14)).unwrap();
    assert_eq!(counts(), (1, 2), "no stream is concerned");
}

#[test]
fn streams_are_woken_after_their_dispatcher_is_dropped() {
    let (mut writer, reader) = ready();
    let wakes = Arc::new(Count::default());
    let waker = Waker::from(wakes.clone());
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut poll = || stream.poll_next(&mut Context::from_waker(&waker));
    let dispatcher = Dispatcher::install();
    assert!(poll().is_pending());
    write(&mut writer, 11);
    assert_eq!(wakes.get(), 0, "the dispatcher was not run");
    drop(dispatcher);
    assert_eq!(wakes.get(), 1);
    assert!(poll().is_ready() && poll().is_pending());
    write(&mut writer, 12);
    assert_eq!(wakes.get(), 2, "woken by the writer itself");

    // A stream moves to a new dispatcher when it is polled again.
    let mut dispatcher = std::pin::pin!(Dispatcher::install());
    assert!(poll().is_ready() && poll().is_pending());
    write(&mut writer, 13);
    assert_eq!(wakes.get(), 2);
    let mut context = Context::from_waker(Waker::noop());
    assert!(dispatcher.as_mut().poll(&mut context).is_pending());
    assert_eq!(wakes.get(), 3);
}
