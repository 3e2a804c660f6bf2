//! ClientConnection: the connection of a request.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::net::{FileSlot, FileSlots, NoFileSlot};

/// The number of a connection's requests that may do long work concurrently. More would not be
/// faster, because they share a thread.
const TURNS: usize = 2;

/// The connection that a request arrived on. It is different from all other connections of the
/// process. Unlike [`Peer`](crate::net::Peer), it never belongs to two connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientConnection {
    id: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    turns: Semaphore,
    finish: Notify,
    unaccepted: AtomicUsize,
    /// `None` if files are not limited.
    files: Option<FileSlots>,
    memo: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl ClientConnection {
    /// Creates a connection with an identifier that was not used before. Its files are not limited.
    pub fn next() -> ClientConnection {
        Self::with_files(None)
    }

    /// Creates a connection with a new identifier. Its requests take slots for further files from
    /// `files`.
    pub(super) fn with_files(files: Option<FileSlots>) -> ClientConnection {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ClientConnection {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            shared: Arc::new(Shared {
                turns: Semaphore::new(TURNS),
                finish: Notify::new(),
                unaccepted: AtomicUsize::new(0),
                files,
                memo: OnceLock::new(),
            }),
        }
    }

    /// Waits until few enough requests of the connection do long work. The request may do its own
    /// long work until the permit is dropped. Cancel safe: a request that was cancelled loses its
    /// place.
    ///
    /// All requests of a connection run on one thread, and the thread's connections take turns. So
    /// without this limit, each turn of a connection with a thousand long reads would do the work
    /// of many of them.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Fails only if the semaphore is closed, which it never is.
        self.shared.turns.acquire().await.ok()
    }

    /// Closes the connection after the answers to its current requests. Over HTTP/2, its client
    /// gets a GOAWAY frame, and sends further requests on another connection.
    pub fn finish(&self) {
        // The notification is remembered if nothing waits for it yet.
        self.shared.finish.notify_one();
    }

    /// Waits for [`finish`](Self::finish).
    pub(super) async fn finishing(&self) {
        self.shared.finish.notified().await;
    }

    /// Takes a slot under the limit of open connections, for a connection to another server that
    /// one request uses exclusively for a long time. Returns `None` if there is no limit.
    ///
    /// # Errors
    /// If too few slots are free. A quarter of the slots is only for connections of clients.
    pub fn take_file(&self) -> Result<Option<FileSlot>, NoFileSlot> {
        let files = self.shared.files.as_ref();
        files.map(FileSlots::take).transpose()
    }

    /// Counts a request with a sender that has not shown accepted credentials, unless the
    /// connection already has `limit` such requests. Returns whether it was counted.
    pub fn count_unaccepted(&self, limit: usize) -> bool {
        let more = |count| (count < limit).then_some(count + 1);
        let unaccepted = &self.shared.unaccepted;
        let counted = unaccepted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.is_ok()
    }

    /// Ends the count of a request, because its credentials were accepted, or the request was never
    /// judged.
    pub fn uncount_unaccepted(&self) {
        self.shared.unaccepted.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns a value that the requests of the connection share. Its type is the caller's, and the
    /// first call creates it.
    ///
    /// # Panics
    /// If it is called with two different types.
    pub fn memo<T: Any + Default + Send + Sync>(&self) -> &T {
        let memo = self.shared.memo.get_or_init(|| Box::new(T::default()));
        memo.downcast_ref()
            .expect("all callers use the same type of memo")
    }
}

impl PartialEq for ClientConnection {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for ClientConnection {}

impl Hash for ClientConnection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaccepted_requests_are_limited_for_ever() {
        let connection = ClientConnection::next();
        assert!(connection.count_unaccepted(2) && connection.count_unaccepted(2));
        assert!(!connection.count_unaccepted(2));
        connection.uncount_unaccepted();
        assert!(connection.count_unaccepted(2) && !connection.count_unaccepted(2));
        assert!(ClientConnection::next().count_unaccepted(2));
    }

    #[test]
    fn a_memo_belongs_to_one_connection_and_all_its_requests() {
        let connection = ClientConnection::next();
        let request = connection.clone();
        connection.memo::<AtomicUsize>().store(3, Ordering::Relaxed);
        let read = |of: &ClientConnection| of.memo::<AtomicUsize>().load(Ordering::Relaxed);
        assert_eq!(read(&request), 3);
        assert_eq!(read(&ClientConnection::next()), 0);
    }
}
