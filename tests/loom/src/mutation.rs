//! Replaces kubefan's module of the same name. Its variants are those that the compiled files name.

use std::cell::Cell;

/// A deliberate error in the protocol; kubefan's `src/core/mutation.rs` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A stream may read a queue from a position at which the queue lacks events.
    GroupStartIgnored,
    /// A stream gets events again that it has read from the log.
    QueuedAgain,
    /// Evictions do not change a queue's event numbers.
    EvictionUncounted,
    /// The end of an epoch does not end the queues.
    QueueKeptAtEpoch,
    /// A stream does not read the tip again after it has registered its waker.
    TipNotReadAgain,
}

// All of loom's threads run on the thread of the test.
thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

pub(crate) fn is_active(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

/// Runs `body` with `mutation` on, on this thread only.
pub fn with(mutation: Mutation, body: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            ACTIVE.set(None);
        }
    }
    // The mutation ends also if `body` panics, because the thread may run other tests.
    let _reset = Reset;
    ACTIVE.set(Some(mutation));
    body();
}
