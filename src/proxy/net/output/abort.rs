//! Abort: ends the answer to a request from another task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::streams::StreamHandle;
use crate::ledger::Account;

/// Ends the answer to a request: its HTTP/2 stream is reset, or its HTTP/1.1 connection is closed.
/// Every request on a connection with an account has one. Clones end the same answer. It affects
/// neither an answer that has already ended nor the next answer on the connection.
///
/// A body can end its answer with an error, but only when it is polled. That of a client that opens
/// no flow-control window, or takes nothing from its socket, is not polled.
#[derive(Clone)]
pub struct Abort(Target);

#[derive(Clone)]
enum Target {
    /// An HTTP/2 stream.
    Stream(Arc<StreamHandle>),
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

    /// Creates an abort that ends an HTTP/2 stream.
    pub(in crate::net) fn of_stream(stream: Arc<StreamHandle>) -> Self {
        Self(Target::Stream(stream))
    }

    /// Ends the answer, unless the HTTP library has already taken it completely.
    pub fn abort(&self) {
        match &self.0 {
            Target::Stream(stream) => stream.abort(),
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
