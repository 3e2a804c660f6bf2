//! ClientConnection: the connection of a request.

use std::any::Any;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;
use tokio::sync::Semaphore;
use tokio::sync::SemaphorePermit;

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
    memo: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl ClientConnection {
    /// A connection with an identifier that was not used before.
    pub fn next() -> ClientConnection {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ClientConnection {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            shared: Arc::new(Shared {
                turns: Semaphore::new(TURNS),
                finish: Notify::new(),
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

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
