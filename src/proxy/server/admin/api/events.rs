//! A stream of snapshots, one per second, as server-sent events.
//!
//! One task renders, only while there are streams, and all streams share its bytes. A stream has
//! the newest snapshot and no queue. It ends if its client has missed several snapshots in
//! sequence, because it reads too slowly, and otherwise after 50 s: its connection lasts little
//! longer, and the client's right is checked when it opens the next one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use kubefan_core::body;
use kubefan_core::body::Body;
use kubefan_core::shutdown::{Phase, PhaseReached, Shutdown};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// The most streams at a time.
const MAX_STREAMS: usize = 16;
/// The time between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a stream lasts. The connection is open for at most 52 s before.
const LIFETIME: Duration = Duration::from_secs(50);
/// A stream ends if its client has missed more snapshots in sequence.
const MAX_MISSED: u64 = 5;
/// How long a client should wait before it opens the next stream, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// All streams of snapshots.
#[derive(Default)]
pub(super) struct Events {
    snapshots: watch::Sender<Event>,
    /// The task that renders. `None` while there is no stream.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A snapshot, encoded for all streams.
#[derive(Clone, Default)]
struct Event {
    /// The number of snapshots before this one, and this one.
    number: u64,
    /// Empty before the first snapshot, and while there are no streams.
    frame: Bytes,
}

/// One stream.
struct Reading {
    snapshots: watch::Receiver<Event>,
    /// The number of the last snapshot that was sent; 0 before the first one.
    last: u64,
    ends_at: Instant,
    drain: PhaseReached,
}

// === impl Events ===

impl Events {
    /// Opens a stream of what `render` returns as JSON in one line, and begins to render if it is
    /// the only one. Returns `None` if there are too many streams. While `render` returns `None`,
    /// the streams get nothing.
    pub(super) fn open(
        self: &Arc<Self>,
        render: impl Fn() -> Option<Bytes> + Send + 'static,
        shutdown: &Shutdown,
    ) -> Option<Body> {
        // Under this lock the task also decides that there is no stream left.
        let mut task = self.task.lock();
        if self.snapshots.receiver_count() >= MAX_STREAMS {
            return None;
        }
        let mut snapshots = self.snapshots.subscribe();
        snapshots.mark_changed();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let events = Arc::clone(self);
            *task = Some(shutdown.spawn_background(async move { events.run(render).await }));
        }
        drop(task);
        let reading = Reading {
            snapshots,
            last: 0,
            ends_at: Instant::now() + LIFETIME,
            drain: shutdown.reached(Phase::StopAccepting),
        };
        let frames = stream::unfold(reading, |mut reading| async move {
            let frame = reading.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(frame)), reading))
        });
        Some(body::boxed(StreamBody::new(frames)))
    }

    /// Renders a snapshot per second until there is no stream left.
    async fn run(&self, render: impl Fn() -> Option<Bytes>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            {
                let mut task = self.task.lock();
                if self.snapshots.receiver_count() == 0 {
                    *task = None;
                    self.snapshots.send_modify(|event| event.frame.clear());
                    return;
                }
            }
            let Some(data) = render() else { continue };
            self.snapshots.send_modify(|event| {
                event.number += 1;
                event.frame = frame(event.number, &data);
            });
        }
    }
}

/// Returns the event with `data`, which is one line.
fn frame(number: u64, data: &[u8]) -> Bytes {
    let head = format!("retry: {RETRY_MS}\nid: {number}\nevent: snapshot\ndata: ");
    [head.as_bytes(), data, b"\n\n"].concat().into()
}

// === impl Reading ===

impl Reading {
    /// Returns the next snapshot, or `None` if the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                () = &mut self.drain => return None,
                () = sleep_until(self.ends_at) => return None,
                changed = self.snapshots.changed() => changed.ok()?,
            }
            let event = self.snapshots.borrow_and_update().clone();
            if event.frame.is_empty() {
                continue;
            }
            let missed = event.number - self.last - 1;
            if self.last > 0 && missed > MAX_MISSED {
                return None;
            }
            self.last = event.number;
            return Some(event.frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use http_body_util::BodyExt;
    use kubefan_core::shutdown;
    use tokio::time::{advance, timeout};

    use super::*;

    /// Streams, and the number of snapshots that were rendered for them.
    struct Server {
        events: Arc<Events>,
        rendered: Arc<AtomicU32>,
        shutdown: Shutdown,
    }

    impl Server {
        fn new() -> Self {
            Self {
                events: Arc::default(),
                rendered: Arc::default(),
                shutdown: Shutdown::new(shutdown::Config::default()),
            }
        }

        fn open(&self) -> Option<Body> {
            let rendered = Arc::clone(&self.rendered);
            let render = move || {
                let before = rendered.fetch_add(1, Ordering::Relaxed);
                Some(format!("{{\"snapshot\":{before}}}").into())
            };
            self.events.open(render, &self.shutdown)
        }

        fn rendered(&self) -> u32 {
            self.rendered.load(Ordering::Relaxed)
        }
    }

    /// Returns the next frame of a stream as text; `None` at its end.
    async fn next(stream: &mut Body) -> Option<String> {
        let frame = timeout(Duration::from_secs(100), stream.frame()).await;
        let frame = frame.expect("a frame or the end")?.expect("no error");
        let data = frame.into_data().expect("data");
        Some(String::from_utf8(data.to_vec()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn all_streams_get_the_same_snapshots_which_are_rendered_once() {
        let server = Server::new();
        let mut streams = Vec::new();
        for _ in 0..MAX_STREAMS {
            streams.push(server.open().expect("a place"));
        }
        assert!(server.open().is_none(), "one more than the limit");
        for number in 1..=3 {
            let expected = format!(
                "retry: 1000\nid: {number}\nevent: snapshot\ndata: {{\"snapshot\":{}}}\n\n",
                number - 1
            );
            for stream in &mut streams {
                assert_eq!(next(stream).await, Some(expected.clone()));
            }
            assert_eq!(server.rendered(), number);
        }
        streams.pop();
        assert!(server.open().is_some(), "a stream has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_rendered_without_a_stream() {
        let server = Server::new();
        let mut stream = server.open().expect("a place");
        next(&mut stream).await;
        drop(stream);
        advance(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let rendered = server.rendered();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(server.rendered(), rendered);
        // The next stream gets no old snapshot.
        let mut stream = server.open().expect("a place");
        let first = next(&mut stream).await.expect("a snapshot");
        assert!(
            first.contains(&format!("{{\"snapshot\":{rendered}}}")),
            "{first}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_gets_the_newest_snapshot_and_ends_if_it_has_missed_many() {
        let server = Server::new();
        let mut slow = server.open().expect("a place");
        let mut slower = server.open().expect("a place");
        next(&mut slow).await.expect("the first snapshot");
        next(&mut slower).await.expect("the first snapshot");
        tokio::time::sleep(PERIOD * 7 / 2).await;
        let newest = next(&mut slow).await.expect("it has missed two");
        assert!(newest.contains("id: 4\n"), "{newest}");
        tokio::time::sleep(PERIOD * 5).await;
        assert_eq!(next(&mut slower).await, None);
        next(&mut slow).await.expect("it has missed four");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_in_time_for_its_connection_and_at_a_drain() {
        let server = Server::new();
        let start = Instant::now();
        let mut stream = server.open().expect("a place");
        while next(&mut stream).await.is_some() {}
        assert_eq!(start.elapsed(), LIFETIME);

        let start = Instant::now();
        let mut stream = server.open().expect("a place");
        next(&mut stream).await.expect("a snapshot");
        let drain = server.shutdown.clone();
        tokio::spawn(async move { drain.drain().await });
        while next(&mut stream).await.is_some() {}
        assert!(start.elapsed() < LIFETIME);
    }
}
