//! Connections that have not shown their protocol yet, and the limit of their number.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The connections of a listener that are being opened. If there are too many, the oldest is closed
/// for each new one. A client that completes its handshake needs only milliseconds, so its
/// connection opens even if others open thousands of connections and send nothing. If kubefan itself
/// is the slow one, as when thousands of clients come after a restart, this closes theirs, too.
#[derive(Clone, Debug)]
pub(super) struct PendingOpenings {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    next: u64,
    /// A sender for each connection, in the order of their acceptance. Dropping the sender closes
    /// the connection.
    pending: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A connection that is being opened. As a future, this completes when the connection must be
/// closed in favour of newer ones. It must be dropped when the connection is open.
#[derive(Debug)]
pub(super) struct Opening {
    openings: PendingOpenings,
    number: u64,
    closed: oneshot::Receiver<()>,
}

// === impl PendingOpenings ===

impl PendingOpenings {
    pub(super) fn new(limit: usize) -> PendingOpenings {
        let inner = Inner {
            limit,
            next: 0,
            pending: BTreeMap::new(),
        };
        PendingOpenings {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Adds a connection. Closes the oldest connection if there are too many now.
    pub(super) fn begin(&self) -> Opening {
        let (open, closed) = oneshot::channel();
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.pending.insert(number, open);
        if inner.pending.len() > inner.limit {
            inner.pending.pop_first();
        }
        Opening {
            openings: self.clone(),
            number,
            closed,
        }
    }
}

// === impl Opening ===

impl Future for Opening {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.closed).poll(cx).map(|_| ())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.openings.inner.lock().pending.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_closed(opening: &mut Opening) -> bool {
        opening.now_or_never().is_some()
    }

    #[test]
    fn the_oldest_opening_is_closed_for_a_new_one() {
        let openings = PendingOpenings::new(2);
        let mut first = openings.begin();
        let second = openings.begin();
        assert!(!is_closed(&mut first));
        // The second has opened, so it makes room.
        drop(second);
        let mut third = openings.begin();
        assert!(!is_closed(&mut first));
        let mut fourth = openings.begin();
        assert!(is_closed(&mut first));
        assert!(!is_closed(&mut third) && !is_closed(&mut fourth));
        drop((first, third, fourth));
        assert!(openings.inner.lock().pending.is_empty());
    }
}
