//! Tests of revocable bodies, with a ledger and readers of all speeds.

use std::task::Wake;

use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use kubefan_core::body;
use tokio::time::sleep;

use super::*;
use crate::ledger::{Ledger, Limits, MemoryKind};
use crate::server::answers::consumers::Consumers;

const RATE: u64 = 64 << 10;

fn ledger() -> Ledger {
    Ledger::new(Limits::new(Some(1 << 30), None, RATE))
}

/// Makes a body of `length` bytes in frames of `frame` bytes. The body holds `alive`.
fn body(length: usize, frame: usize, alive: &Arc<()>) -> Body {
    let frames = (0..length.div_ceil(frame)).map(move |number| {
        let bytes = vec![b'x'; frame.min(length - number * frame)];
        Ok::<_, std::io::Error>(Frame::data(Bytes::from(bytes)))
    });
    let alive = Arc::clone(alive);
    let frames = stream::iter(frames).inspect(move |_| assert!(Arc::strong_count(&alive) > 1));
    body::boxed(StreamBody::new(frames))
}

fn held(body: Body, account: &Arc<Account>) -> RevocableBody {
    RevocableBody::new(body, reader(account))
}

fn reader(account: &Arc<Account>) -> BodyReader<'_> {
    let charge = |kind, bytes| account.charge(kind, bytes).expect("it fits");
    BodyReader {
        account,
        stream: charge(MemoryKind::Stream, 1),
        chunks: charge(MemoryKind::Body, RevocableBody::FIRST_CHARGE),
        snapshot: None,
        window: 0,
        has_minimum_rate: true,
        abort: None,
        ending: None,
    }
}

fn charged(ledger: &Ledger, kind: MemoryKind) -> u64 {
    let usage = ledger.usage();
    let of_kind = usage.iter().find(|(name, _)| *name == kind.name());
    of_kind.map_or(0, |(_, bytes)| *bytes)
}

/// Sweeps every second, as the ledger does.
fn start_sweeping(ledger: &Ledger) {
    tokio::spawn(ledger.clone().run());
}

/// Reads `body` to its end or error, and pauses after each chunk for as long as `rate` requires.
/// Returns the bytes that it read, and whether the body was complete.
async fn read(mut body: RevocableBody, rate: u64) -> (usize, bool) {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (bytes, false);
        };
        let length = frame.into_data().expect("data").len();
        bytes += length;
        sleep(Duration::from_secs_f64(length as f64 / rate as f64)).await;
    }
    (bytes, true)
}

#[tokio::test(start_paused = true)]
async fn a_slow_steady_reader_gets_everything_and_a_slower_one_is_cut() {
    let ledger = ledger();
    start_sweeping(&ledger);
    let alive = Arc::new(());
    let length = 300 << 20;
    for (rate, is_complete) in [(RATE + RATE / 20, true), (RATE - RATE / 20, false)] {
        let account = ledger.open_account();
        let read = read(held(body(length, 1 << 20, &alive), &account), rate).await;
        assert_eq!(read.1, is_complete, "{rate} bytes/s");
        assert_eq!(read.0 == length, is_complete, "{rate} bytes/s");
        drop(account);
        assert_eq!(ledger.leased(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_bodies_of_a_connection_share_the_rate_of_its_line() {
    let ledger = ledger();
    start_sweeping(&ledger);
    let alive = Arc::new(());
    for (rate, is_complete) in [(RATE + RATE / 20, true), (RATE - RATE / 20, false)] {
        let account = ledger.open_account();
        let reads = (0..10).map(|_| {
            let held = held(body(4 << 20, 1 << 20, &alive), &account);
            async move { read(held, rate / 10).await.1 }
        });
        let complete = futures_util::future::join_all(reads).await;
        assert!(
            complete.iter().all(|all| *all == is_complete),
            "{rate}: {complete:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_reader_stalls_is_dropped_without_a_poll() {
    let ledger = ledger();
    start_sweeping(&ledger);
    let account = ledger.open_account();
    let alive = Arc::new(());
    let mut stalled = held(body(1 << 30, 16 << 10, &alive), &account);
    assert!(stalled.frame().await.is_some_and(|frame| frame.is_ok()));
    assert_eq!(Arc::strong_count(&alive), 2);
    sleep(Duration::from_secs(29)).await;
    assert_eq!(Arc::strong_count(&alive), 2);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(Arc::strong_count(&alive), 1);
    // What the HTTP library holds stays charged until it drops the body.
    assert!(ledger.leased() > 0);
    assert!(!http_body::Body::is_end_stream(&stalled));
    assert!(stalled.frame().await.is_some_and(|frame| frame.is_err()));
    assert!(stalled.frame().await.is_none());
    drop((stalled, account));
    assert_eq!(ledger.leased(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_not_blamed_for_a_slow_producer() {
    let ledger = ledger();
    start_sweeping(&ledger);
    let account = ledger.open_account();
    let lines = stream::iter(0..20).then(|_| async {
        sleep(Duration::from_secs(60)).await;
        Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"a line of a log\n")))
    });
    let lines = body::boxed(StreamBody::new(Box::pin(lines)));
    let (bytes, is_complete) = read(held(lines, &account), 1 << 20).await;
    assert_eq!((bytes, is_complete), (20 * 16, true));
}

#[tokio::test]
async fn a_reader_that_waits_for_the_body_is_woken_when_it_is_dropped() {
    let ledger = ledger();
    let account = ledger.open_account();
    let pending = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    let mut held = held(body::boxed(StreamBody::new(pending)), &account);
    let waiting = held.waiting.clone();
    let reader =
        tokio::spawn(async move { held.frame().await.is_some_and(|frame| frame.is_err()) });
    while waiting.with(|waiting| waiting.task.is_none()) == Some(true) {
        tokio::task::yield_now().await;
    }
    Revoke::revoke(&waiting);
    assert!(reader.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn the_window_of_a_forwarded_answer_counts_while_its_reader_stalls() {
    let ledger = ledger();
    let account = ledger.open_account();
    let alive = Arc::new(());
    let body = body(1 << 30, 16 << 10, &alive);
    let reader = BodyReader {
        window: 1 << 20,
        ..reader(&account)
    };
    let mut held = RevocableBody::new(body, reader);
    let forwarded = || {
        ledger.sweep(Instant::now(), &mut false);
        let usage = ledger.usage();
        let of_kind = usage.iter().find(|(kind, _)| *kind == "forwarded");
        of_kind.map(|(_, bytes)| *bytes)
    };
    assert_eq!(forwarded(), Some(0));
    assert!(held.frame().await.is_some());
    assert_eq!(forwarded(), Some(0));
    sleep(STALL).await;
    assert_eq!(forwarded(), Some(1 << 20));
    assert!(held.frame().await.is_some());
    assert_eq!(forwarded(), Some(0));
}

#[tokio::test]
async fn chunks_start_small_and_grow_as_far_as_memory_permits() {
    let alive = Arc::new(());
    // The account of the second ledger has room for the first chunks only.
    let limits = Limits {
        connection_memory: (24 << 10) + 1,
        ..Limits::new(Some(1 << 30), None, RATE)
    };
    for (ledger, largest) in [(ledger(), 64 << 10), (Ledger::new(limits), 8 << 10)] {
        let account = ledger.open_account();
        let length = 10 << 20;
        let mut held = held(body(length, 3 << 20, &alive), &account);
        let mut chunks = Vec::new();
        let mut charged = Vec::new();
        while let Some(frame) = held.frame().now_or_never().flatten() {
            let data = frame.expect("no error").into_data().expect("data");
            chunks.push(data.len());
            charged.push(held.charges.chunks.lock().bytes() as usize);
        }
        assert_eq!(chunks.iter().sum::<usize>(), length);
        assert_eq!(chunks[..2], [4 << 10, 4 << 10]);
        assert_eq!(chunks.iter().max(), Some(&largest));
        for (chunk, charged) in chunks.iter().zip(charged) {
            assert!(*chunk <= charged, "{chunk} of {charged}");
        }
    }
}

#[test]
fn the_length_is_exact_whatever_is_split_off() {
    let ledger = ledger();
    let account = ledger.open_account();
    let full = body::full(vec![b'x'; 100_000]);
    let mut held = held(full, &account);
    let mut cx = Context::from_waker(Waker::noop());
    let mut left = 100_000;
    while !http_body::Body::is_end_stream(&held) {
        assert_eq!(http_body::Body::size_hint(&held).exact(), Some(left));
        let Poll::Ready(Some(Ok(frame))) =
            http_body::Body::poll_frame(Pin::new(&mut held), &mut cx)
        else {
            panic!("a body in memory is ready");
        };
        left -= frame.into_data().expect("data").len() as u64;
    }
    assert_eq!(left, 0);
}

/// Takes chunks of `body` until it is pending or ends.
fn take_all(body: &mut RevocableBody) -> Vec<Bytes> {
    let frames = std::iter::from_fn(|| body.frame().now_or_never().flatten());
    let data = frames.map(|frame| frame.expect("no error").into_data().expect("data"));
    data.collect()
}

#[test]
fn an_answer_that_is_complete_is_not_aborted() {
    let ledger = ledger();
    let account = ledger.open_account();
    let abort = Abort::of_connection(Arc::clone(&account));
    let reader = BodyReader {
        abort: Some(abort),
        ..reader(&account)
    };
    let held = RevocableBody::new(body::full("x"), reader);
    // What a sweep has found.
    let found = held.waiting.clone();
    drop(held);
    Revoke::revoke(&found);
    assert!(!account.is_closing());
}

#[test]
fn all_that_the_http_library_holds_is_charged() {
    let ledger = ledger();
    let account = ledger.open_account();
    let alive = Arc::new(());
    let length = 300 << 10;
    let mut held = held(body(length, 1 << 20, &alive), &account);
    // HTTP/1.1 takes up to 256 KiB before it writes.
    let mut taken = take_all(&mut held);
    assert_eq!(taken.iter().map(Bytes::len).sum::<usize>(), length);
    assert!(charged(&ledger, MemoryKind::Body) >= length as u64);
    // The last chunks wait for the client when the body is gone.
    drop(held);
    assert!(charged(&ledger, MemoryKind::Body) >= length as u64);
    taken.truncate(1);
    assert_eq!(charged(&ledger, MemoryKind::Stream), 1);
    drop(taken);
    assert_eq!(charged(&ledger, MemoryKind::Body), 0);
    assert_eq!(charged(&ledger, MemoryKind::Stream), 0);
}

#[tokio::test]
async fn a_body_without_memory_for_a_chunk_waits_until_others_were_sent() {
    let limits = Limits {
        connection_memory: (24 << 10) + 1,
        ..Limits::new(Some(1 << 30), None, RATE)
    };
    let ledger = Ledger::new(limits);
    let account = ledger.open_account();
    let length = 100 << 10;
    let alive = Arc::new(());
    let mut held = held(body(length, 1 << 20, &alive), &account);
    let mut taken = take_all(&mut held);
    let lengths: Vec<_> = taken.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [4 << 10, 4 << 10]);
    let reader = tokio::spawn(async move { read(held, u64::MAX).await });
    tokio::task::yield_now().await;
    assert!(!reader.is_finished());
    taken.pop();
    let rest = length - (8 << 10);
    assert_eq!(reader.await.expect("no panic"), (rest, true));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_never_polled_is_aborted() {
    let ledger = ledger();
    start_sweeping(&ledger);
    let account = ledger.open_account();
    let alive = Arc::new(());
    let abort = Abort::of_connection(Arc::clone(&account));
    let ending = Arc::new(Ending::new(Consumers::default()));
    let reader = || BodyReader {
        abort: Some(abort.clone()),
        ending: Some(Arc::clone(&ending)),
        ..reader(&account)
    };
    let long_running = BodyReader {
        has_minimum_rate: false,
        ..reader()
    };
    let other = Arc::new(());
    let exempt = RevocableBody::new(body(1 << 20, 1 << 10, &other), long_running);
    let held = RevocableBody::new(body(1 << 20, 1 << 10, &alive), reader());
    sleep(Duration::from_secs(29)).await;
    assert!(!account.is_closing());
    sleep(Duration::from_secs(3)).await;
    assert!(account.is_closing());
    assert_eq!(ending.noted(), Some(End::TooSlow));
    assert_eq!(Arc::strong_count(&alive), 1);
    assert!(!exempt.waiting.is_revoked());
    drop((held, exempt));
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_that_polls_while_its_body_is_dropped_is_woken() {
    for _ in 0..3_000 {
        let ledger = ledger();
        let account = ledger.open_account();
        let pending = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let mut held = held(body::boxed(StreamBody::new(pending)), &account);
        let waiting = held.waiting.clone();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let start = std::sync::Barrier::new(2);
        let is_pending = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                Revoke::revoke(&waiting);
            });
            start.wait();
            let mut cx = Context::from_waker(&waker);
            http_body::Body::poll_frame(Pin::new(&mut held), &mut cx).is_pending()
        });
        assert!(
            !is_pending || wakes.0.load(Ordering::Relaxed) > 0,
            "not woken"
        );
    }
}
