//! Runs the streams of an HTTP/2 connection in the connection's task.
//!
//! An event for many streams of a connection wakes one task. It polls these streams, whose frames
//! are gathered, then the connection if it has something to do, and then writes once. If each
//! stream had a task, the runtime would run all of them and then the connection's, which could not
//! know whether all streams have added their frames.
//!
//! The wakers of the connection and of its streams are kept apart from the task's. While the task
//! runs, a wake only adds to what it polls next. So a frame of a stream does not make the runtime
//! run the task again, and the connection is polled once for all streams.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::{io, mem};

use parking_lot::Mutex;
use slab::Slab;
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

/// The most streams that are polled between two polls of the connection.
const MAX_POLLED: usize = 32;
/// How often the connection is polled before other tasks run. A request needs two polls: one reads
/// it, and one sends the head of its answer. After that the data of a long answer can be written.
/// This takes a third round.
const MAX_ROUNDS: usize = 3;

/// The streams of a connection, and what polls them. Those that are left are dropped with this
/// value.
pub(in crate::net) struct Streams {
    /// The connection's waker. It must be used for all that the connection waits for.
    connection: Waker,
    open: OpenStreams,
}

/// The streams of a connection that have not ended.
pub(in crate::net) struct OpenStreams {
    wakes: Arc<Wakes>,
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
    key: usize,
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
    /// Wakes the task; `None` while it runs, and after it was woken.
    task: Option<Waker>,
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
            open: OpenStreams {
                wakes,
                streams: Slab::new(),
                due: VecDeque::new(),
            },
        }
    }

    /// Polls what was woken, the streams before the connection, and then calls `flush`. Its second
    /// argument is true if something is left to poll: other tasks run first then. Ready when
    /// `connection` is ready, or `flush` fails.
    pub(in crate::net) fn poll<E: From<io::Error>>(
        &mut self,
        cx: &mut Context<'_>,
        mut connection: impl FnMut(&mut Context<'_>, &mut OpenStreams) -> Poll<Result<(), E>>,
        flush: impl FnOnce(&mut Context<'_>, bool) -> Poll<io::Result<()>>,
    ) -> Poll<Result<(), E>> {
        let mut is_idle = false;
        for _ in 0..MAX_ROUNDS {
            self.open.poll();
            if self.open.take_connection_wake()
                && let Poll::Ready(ended) = self.poll_connection(&mut connection)
            {
                return Poll::Ready(ended);
            }
            is_idle = self.open.park(cx.waker());
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
        connection: &mut impl FnMut(&mut Context<'_>, &mut OpenStreams) -> Poll<Result<(), E>>,
    ) -> Poll<Result<(), E>> {
        let mut cx = Context::from_waker(&self.connection);
        let open = &mut self.open;
        let polled = catch_unwind(AssertUnwindSafe(|| connection(&mut cx, open)));
        polled.unwrap_or_else(|_| {
            mem::forget(mem::take(&mut self.open.streams));
            let error = io::Error::other("the HTTP library has panicked");
            Poll::Ready(Err(error.into()))
        })
    }

    /// Drops the streams that are left, after their connection has ended. Other tasks run in
    /// between, because a watch takes some microseconds to drop. Cancel safe: dropping the value
    /// drops them all.
    pub(in crate::net) async fn end(&mut self) {
        let mut dropped = 0_usize;
        for stream in self.open.streams.drain() {
            stream.end();
            dropped += 1;
            if dropped.is_multiple_of(MAX_POLLED) {
                yield_now().await;
            }
        }
    }
}

// === impl OpenStreams ===

impl OpenStreams {
    /// Starts the stream that `create` returns. It is polled before the connection is polled again.
    pub(in crate::net) fn start<F>(&mut self, create: impl FnOnce(&Arc<StreamHandle>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let key = self.streams.vacant_key();
        let handle = Arc::new(StreamHandle {
            wakes: Arc::clone(&self.wakes),
            key,
            is_due: AtomicBool::new(true),
            is_aborted: AtomicBool::new(false),
        });
        let future = Box::pin(create(&handle));
        self.due.push_back(key);
        self.streams.insert(Stream {
            future,
            waker: Waker::from(Arc::clone(&handle)),
            handle,
        });
    }

    /// Polls streams that were started or woken.
    fn poll(&mut self) {
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
        let parked = {
            let mut woken = self.wakes.0.lock();
            self.due.append(&mut woken.streams);
            woken.task.take()
        };
        drop(parked);
    }

    fn take_connection_wake(&self) -> bool {
        mem::take(&mut self.wakes.0.lock().is_connection_due)
    }

    /// Returns true if nothing is left to poll. The next wake then wakes `task`.
    fn park(&self, task: &Waker) -> bool {
        let mut woken = self.wakes.0.lock();
        let is_due = woken.is_connection_due || !woken.streams.is_empty() || !self.due.is_empty();
        if !is_due {
            woken.task = Some(task.clone());
        }
        !is_due
    }
}

impl Drop for OpenStreams {
    fn drop(&mut self) {
        // Drops the task's waker, which an abort would keep.
        self.take_woken();
        self.streams.drain().for_each(Stream::end);
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
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx)));
        // The panic hook has already reported the panic.
        polled.unwrap_or(Poll::Ready(()))
    }

    /// Drops the stream. This resets it if it is not complete, and drops what is buffered for it. As
    /// in [`Stream::poll`], a panic concerns no other stream, and was reported.
    fn end(self) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self)));
    }
}

// === impl StreamHandle ===

impl StreamHandle {
    /// Makes the connection's task drop the stream, unless it has ended.
    pub(in crate::net) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
        self.schedule();
    }

    fn schedule(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            self.wakes.note(|woken| woken.streams.push_back(self.key));
        }
    }
}

impl Wake for StreamHandle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.schedule();
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

#[cfg(test)]
mod tests;
