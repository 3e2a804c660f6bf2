//! ClientConnection: the connection of a request.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::net::{FileSlot, FileSlots, NoFileSlot};

/// Number of a connection's requests that may do long work concurrently. More would not be faster,
/// because they share a thread.
const TURNS: usize = 2;

/// The connection that a request arrived on, among all connections of the process. It is an
/// extension of every request. Unlike [`Peer`](crate::net::Peer), it never belongs to two
/// connections. Cheap to clone.
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
    /// A connection with an identifier that was not used before, of which files are not limited.
    pub fn next() -> ClientConnection {
        Self::with_files(None)
    }

    /// The same, whose requests take slots for further files from `files`.
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
    /// until the permit is dropped. Cancel safe: a request that was cancelled loses its place.
    ///
    /// All requests of a connection run on one thread, and the thread's tasks take turns. So without
    /// this, a connection with a thousand long reads would get a thousand turns for each one of
    /// another connection.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Fails only if the semaphore is closed, which it never is.
        self.shared.turns.acquire().await.ok()
    }

    /// Closes the connection after the answers to the requests that it has now. Over HTTP/2 its
    /// client is told so (GOAWAY), and sends further requests on another connection.
    pub fn finish(&self) {
        // It is remembered if nothing waits for it yet.
        self.shared.finish.notify_one();
    }

    /// Waits for [`finish`](Self::finish).
    pub(super) async fn finishing(&self) {
        self.shared.finish.notified().await;
    }

    /// Takes a slot under the limit of open connections for a connection to another server that a request
    /// has to itself for a long time; `None` if there is no limit.
    ///
    /// # Errors
    /// If too few are free. A quarter of them is only for connections of clients.
    pub fn take_file(&self) -> Result<Option<FileSlot>, NoFileSlot> {
        let files = self.shared.files.as_ref();
        files.map(FileSlots::take).transpose()
    }

    /// Counts a request for which its sender has not shown accepted credentials, unless the connection
    /// has `limit` of them already. Returns whether it was counted.
    pub fn count_unaccepted(&self, limit: usize) -> bool {
        let more = |count| (count < limit).then_some(count + 1);
        let unaccepted = &self.shared.unaccepted;
        let counted = unaccepted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.is_ok()
    }

    /// The credentials of a counted request were accepted, or it was never judged.
    pub fn uncount_unaccepted(&self) {
        self.shared.unaccepted.fetch_sub(1, Ordering::Relaxed);
    }

    /// What the requests of the connection share: the value of a type of the caller's, which the
    /// first call creates.
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
