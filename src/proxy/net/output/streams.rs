//! Runs the streams of an HTTP/2 connection in the connection's task.
//!
//! An event for many streams of a connection wakes one task. It polls these streams, then the
//! connection, which takes their frames, and then writes once. If each stream had a task, the
//! runtime would run all of them and then the connection's, which could not know whether all
//! streams have added their frames.
//!
//! The wakers of the connection and of its streams are kept apart from the task's. While the task
//! runs, a wake only adds to what it polls next. So a frame of a stream does not make the runtime
//! run the task again, and the connection is polled once for the frames of all streams.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::{io, mem, ptr};

use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

/// The most streams that are polled between two polls of the connection.
const MAX_POLLED: usize = 32;
/// How often the connection is polled before other tasks run. A request needs two polls: the first
/// one reads it, and the second one sends its answer.
const MAX_ROUNDS: usize = 2;

/// The streams of a connection. Those that are left are dropped with this value.
pub(in crate::net) struct Streams {
    wakes: Arc<Wakes>,
    /// The connection's waker. It must be used for all that the connection waits for.
    connection: Waker,
    streams: Slab<Stream>,
    /// The keys of the streams to poll. A stream that has ended may be among them. If another one
    /// has its key, that one is polled once too often.
    due: VecDeque<usize>,
}

struct Stream {
    future: BoxedStream,
    handle: Arc<StreamHandle>,
    waker: Waker,
}

type BoxedStream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Wakes a stream, or ends it, from any thread.
pub(in crate::net) struct StreamHandle {
    wakes: Arc<Wakes>,
    /// The stream's key, which it has before it is first polled.
    key: AtomicUsize,
    /// True if the stream is going to be polled: before its first poll, and after a wake.
    is_due: AtomicBool,
    is_aborted: AtomicBool,
}

/// What the connection's task has to poll. This is also the connection's waker.
#[derive(Default)]
struct Wakes(Mutex<Woken>);

#[derive(Default)]
struct Woken {
    is_connection_due: bool,
    /// The keys of the streams that were woken, in this order.
    streams: VecDeque<usize>,
    /// The streams that have no key yet.
    started: Vec<(BoxedStream, Arc<StreamHandle>)>,
    /// The handle of the request that has just been passed to the service. For a request, hyper
    /// calls the service, and then at once the executor with the request's stream.
    next: Option<Arc<StreamHandle>>,
    /// Wakes the task; `None` while it runs, and after it was woken.
    task: Option<Waker>,
}

/// Adds the streams that hyper starts to the [`Streams`] of their connection.
#[derive(Clone)]
pub(in crate::net) struct StreamExecutor(Arc<Wakes>);

pin_project! {
    /// Runs the service's part of a stream: see [`in_service`].
    pub(in crate::net) struct InService<F> {
        #[pin]
        future: F,
    }
}

thread_local! {
    /// The stream that this thread polls, while it runs the code of the HTTP library and not that
    /// of the service. Null otherwise.
    static IN_LIBRARY: Cell<*const StreamHandle> = const { Cell::new(ptr::null()) };
}

/// Runs what the service does in a poll of a stream: its future, and the body of its answer.
///
/// Only there, a stream can ask to be polled again. hyper reserves capacity for each frame, and
/// `h2` then wakes the stream, although hyper reads the capacity in the same poll. Without this
/// distinction, each frame would cost another poll of the stream, which finds nothing. Guarded by
/// `an_event_costs_no_poll_that_finds_nothing`, and by `http2_carries_large_bodies_whole`, which
/// would hang if hyper relied on such a wake.
pub(in crate::net) fn in_service<T>(poll: impl FnOnce() -> T) -> T {
    let stream = IN_LIBRARY.replace(ptr::null());
    let polled = poll();
    IN_LIBRARY.set(stream);
    polled
}

// === impl Streams ===

impl Streams {
    /// Creates the streams of a connection that has not been polled.
    pub(in crate::net) fn new() -> Self {
        let woken = Woken {
            is_connection_due: true,
            ..Woken::default()
        };
        let wakes = Arc::new(Wakes(Mutex::new(woken)));
        Self {
            connection: Waker::from(Arc::clone(&wakes)),
            wakes,
            streams: Slab::new(),
            due: VecDeque::new(),
        }
    }

    /// Returns the executor that the connection needs.
    pub(in crate::net) fn executor(&self) -> StreamExecutor {
        StreamExecutor(Arc::clone(&self.wakes))
    }

    /// Polls what was woken, the streams before the connection, and then calls `flush`. Its second
    /// argument is true if something is left to poll: other tasks run first then. Ready when
    /// `connection` is ready, or `flush` fails.
    pub(in crate::net) fn poll<E: From<io::Error>>(
        &mut self,
        cx: &mut Context<'_>,
        mut connection: impl FnMut(&mut Context<'_>) -> Poll<Result<(), E>>,
        flush: impl FnOnce(&mut Context<'_>, bool) -> Poll<io::Result<()>>,
    ) -> Poll<Result<(), E>> {
        let mut is_idle = false;
        for _ in 0..MAX_ROUNDS {
            self.poll_streams();
            if self.take_connection_wake()
                && let Poll::Ready(ended) = self.poll_connection(&mut connection)
            {
                return Poll::Ready(ended);
            }
            is_idle = self.park(cx.waker());
            if is_idle {
                break;
            }
        }
        let flushed = flush(&mut Context::from_waker(&self.connection), !is_idle);
        if let Poll::Ready(Err(error)) = flushed {
            return Poll::Ready(Err(error.into()));
        }
        if is_idle {
            return Poll::Pending;
        }
        // Unlike a wake, this also lets the runtime poll its sockets first.
        pin!(yield_now()).poll(cx).map(Ok)
    }

    /// Polls the connection. If it panics, it ends, and its streams are leaked: dropping them takes a
    /// lock of the HTTP library that is poisoned then, which would panic again.
    fn poll_connection<E: From<io::Error>>(
        &mut self,
        connection: &mut impl FnMut(&mut Context<'_>) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        let mut cx = Context::from_waker(&self.connection);
        let polled = catch_unwind(AssertUnwindSafe(|| connection(&mut cx)));
        polled.unwrap_or_else(|_| {
            mem::forget(mem::take(&mut self.streams));
            mem::forget(mem::take(&mut self.wakes.0.lock().started));
            let error = io::Error::other("the HTTP library has panicked");
            Poll::Ready(Err(error.into()))
        })
    }

    /// Drops the streams that are left, after their connection has ended. Other tasks run in
    /// between, because a watch takes some microseconds to drop. Cancel safe: dropping the value
    /// drops them all.
    pub(in crate::net) async fn end(&mut self) {
        let mut dropped = 0_usize;
        for stream in self.streams.drain() {
            stream.end();
            dropped += 1;
            if dropped.is_multiple_of(MAX_POLLED) {
                yield_now().await;
            }
        }
    }

    /// Polls streams that were started or woken.
    fn poll_streams(&mut self) {
        self.take_woken();
        for _ in 0..MAX_POLLED {
            let Some(key) = self.due.pop_front() else {
                return;
            };
            let stream = self.streams.get_mut(key);
            if stream.is_some_and(|stream| stream.poll().is_ready()) {
                self.streams.remove(key).end();
            }
        }
    }

    fn take_woken(&mut self) {
        let (started, parked) = {
            let mut woken = self.wakes.0.lock();
            self.due.append(&mut woken.streams);
            (mem::take(&mut woken.started), woken.task.take())
        };
        drop(parked);
        for (future, handle) in started {
            let entry = self.streams.vacant_entry();
            handle.key.store(entry.key(), Ordering::Relaxed);
            self.due.push_back(entry.key());
            entry.insert(Stream {
                future,
                waker: Waker::from(Arc::clone(&handle)),
                handle,
            });
        }
    }

    fn take_connection_wake(&self) -> bool {
        mem::take(&mut self.wakes.0.lock().is_connection_due)
    }

    /// Returns true if nothing is left to poll. The next wake then wakes `task`.
    fn park(&self, task: &Waker) -> bool {
        let mut woken = self.wakes.0.lock();
        let is_due = woken.is_connection_due
            || !woken.streams.is_empty()
            || !woken.started.is_empty()
            || !self.due.is_empty();
        if !is_due {
            woken.task = Some(task.clone());
        }
        !is_due
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // A stream that was started holds the executor, and with it these wakes.
        let left = mem::take(&mut *self.wakes.0.lock());
        self.streams.drain().for_each(Stream::end);
        for (future, _) in left.started {
            drop_isolated(future);
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Polls the stream. It ends when it is aborted. A panic ends only this stream, as that of a
    /// task would.
    fn poll(&mut self) -> Poll<()> {
        // Before the poll, so that a wake during the poll is not lost.
        self.handle.is_due.swap(false, Ordering::AcqRel);
        if self.handle.is_aborted.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        // One stream must not use up tokio's budget of the others and of the connection. What works
        // for long yields by itself.
        let mut future = unconstrained(self.future.as_mut());
        let (future, mut cx) = (Pin::new(&mut future), Context::from_waker(&self.waker));
        let outer = IN_LIBRARY.replace(Arc::as_ptr(&self.handle));
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx)));
        IN_LIBRARY.set(outer);
        // The panic hook has already reported the panic.
        polled.unwrap_or(Poll::Ready(()))
    }

    /// Drops the stream. This resets it if it is not complete, and drops what is buffered for it.
    fn end(self) {
        drop_isolated(self);
    }
}

/// Drops what belongs to one stream. As in [`Stream::poll`], a panic concerns no other stream, and was
/// reported.
fn drop_isolated<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

// === impl StreamHandle ===

impl StreamHandle {
    fn new(wakes: &Arc<Wakes>) -> Arc<Self> {
        Arc::new(Self {
            wakes: Arc::clone(wakes),
            key: AtomicUsize::new(0),
            is_due: AtomicBool::new(true),
            is_aborted: AtomicBool::new(false),
        })
    }

    /// Makes the connection's task drop the stream, unless it has ended.
    pub(in crate::net) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.schedule();
    }

    fn schedule(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            let key = self.key.load(Ordering::Relaxed);
            self.wakes.note(|woken| woken.streams.push_back(key));
        }
    }
}

impl Wake for StreamHandle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // See `in_service`. Other threads never poll this stream at the same time, so their wakes
        // count.
        if IN_LIBRARY.get() != Arc::as_ptr(self) {
            self.schedule();
        }
    }
}

// === impl Wakes ===

impl Wakes {
    /// Notes a wake by `note`, and wakes the task unless it runs.
    fn note(&self, note: impl FnOnce(&mut Woken)) {
        let task = {
            let mut woken = self.0.lock();
            note(&mut woken);
            woken.task.take()
        };
        // Not under the lock, because a runtime that is shutting down drops the task here.
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note(|woken| woken.is_connection_due = true);
    }
}

// === impl StreamExecutor ===

impl StreamExecutor {
    /// Returns the handle of the next stream that is executed.
    pub(in crate::net) fn next_stream(&self) -> Arc<StreamHandle> {
        let handle = StreamHandle::new(&self.0);
        self.0.0.lock().next = Some(Arc::clone(&handle));
        handle
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let stream: BoxedStream = Box::pin(stream);
        self.0.note(|woken| {
            let handle = woken.next.take();
            let handle = handle.unwrap_or_else(|| StreamHandle::new(&self.0));
            woken.started.push((stream, handle));
        });
    }
}

// === impl InService ===

impl<F> InService<F> {
    pub(in crate::net) fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for InService<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.project().future;
        in_service(|| future.poll(cx))
    }
}

#[cfg(test)]
mod tests;
