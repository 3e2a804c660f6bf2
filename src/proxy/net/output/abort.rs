//! Abort: ends the answer to a request from another task.

use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::bill::{CpuAccount, Measured};
use crate::ledger::Account;

/// Ends the answer to a request: its HTTP/2 stream is reset, or its HTTP/1.1 connection is closed.
/// Every request on a connection with an account has one. Clones end the same answer. It affects
/// neither an answer that has already ended nor the next answer on the connection.
///
/// A body can end its answer with an error, but only when it is polled. The HTTP library does not
/// poll the body of a client that opens no flow-control window, or takes nothing from its socket.
#[derive(Clone)]
pub struct Abort(Target);

#[derive(Clone)]
enum Target {
    /// The task of an HTTP/2 stream. It is set as soon as the task is spawned.
    Stream(Arc<OnceLock<AbortHandle>>),
    /// An answer on an HTTP/1.1 connection.
    Connection(Arc<Account>, Answer),
}

/// Whether an answer on an HTTP/1.1 connection has ended. An answer either ends or is aborted,
/// never both: a client that has seen the end may send its next request on the connection.
#[derive(Clone, Debug, Default)]
pub(in crate::net) struct Answer(Arc<AtomicU8>);

/// The answer is being sent.
const OPEN: u8 = 0;
/// The HTTP library has taken the complete answer.
const ENDED: u8 = 1;
/// The answer's connection is being closed.
const ABORTED: u8 = 2;

/// Runs the streams of an HTTP/2 connection, each in a task that its [`Abort`] can end.
#[derive(Clone, Debug, Default)]
pub(in crate::net) struct StreamExecutor {
    /// The task of the request that has just been passed to the service. For a request, hyper calls
    /// the service, and then at once the executor with the request's stream.
    next: Arc<Mutex<Option<Arc<OnceLock<AbortHandle>>>>>,
    /// The account that the tasks' CPU time is charged to; `None` if it is not measured.
    cpu: Option<Arc<CpuAccount>>,
}

// === impl Abort ===

impl Abort {
    /// Creates an abort that ends the HTTP/1.1 connection of `account`, for an answer that never
    /// ends.
    #[cfg(test)]
    pub(crate) fn of_connection(account: Arc<Account>) -> Self {
        Self::of_answer(account, Answer::default())
    }

    /// Creates an abort that ends the HTTP/1.1 connection of `account`, unless `answer` has ended.
    pub(in crate::net) fn of_answer(account: Arc<Account>, answer: Answer) -> Self {
        Self(Target::Connection(account, answer))
    }

    /// Ends the answer, unless the HTTP library has already taken it completely.
    pub fn abort(&self) {
        match &self.0 {
            // The task drops the stream. This resets the stream, and drops what is buffered for it.
            Target::Stream(task) => {
                if let Some(task) = task.get() {
                    task.abort();
                }
            }
            Target::Connection(account, answer) => {
                if answer.leave_open(ABORTED) {
                    account.close();
                }
            }
        }
    }
}

// === impl Answer ===

impl Answer {
    /// Ends the answer. Returns false if the answer was already aborted.
    pub(in crate::net) fn end(&self) -> bool {
        self.leave_open(ENDED) || self.0.load(Ordering::Acquire) == ENDED
    }

    fn leave_open(&self, state: u8) -> bool {
        let changed = self
            .0
            .compare_exchange(OPEN, state, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }
}

// === impl StreamExecutor ===

impl StreamExecutor {
    /// Creates an executor whose tasks are charged to `cpu`.
    pub(in crate::net) fn charging(cpu: Option<Arc<CpuAccount>>) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }

    /// Returns the abort of the next stream that is executed.
    pub(in crate::net) fn abort_of_next(&self) -> Abort {
        let task = Arc::default();
        *self.next.lock() = Some(Arc::clone(&task));
        Abort(Target::Stream(task))
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    #[expect(
        clippy::disallowed_methods,
        reason = "the task ends with its connection, which a drain waits for"
    )]
    fn execute(&self, stream: F) {
        let task = match &self.cpu {
            Some(cpu) => tokio::spawn(Measured::new(stream, Arc::clone(cpu))),
            None => tokio::spawn(stream),
        };
        if let Some(next) = self.next.lock().take() {
            // The handle is set only here, and each cell is taken only once.
            let _ = next.set(task.abort_handle());
        }
    }
}
