//! ClientConnection: the connection of a request.

use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

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
    turns: Arc<Semaphore>,
}

impl ClientConnection {
    /// A connection with an identifier that was not used before.
    pub fn next() -> ClientConnection {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ClientConnection {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            turns: Arc::new(Semaphore::new(TURNS)),
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
        self.turns.acquire().await.ok()
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
