//! When the upstream watch of a cache was last proven alive.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::upstream::connect::connection::last_read::LastRead;

/// The time when the lists and watches of one [`ResourceClient`](super::ResourceClient) were last
/// proven alive. Clones share this time.
#[derive(Clone, Debug, Default)]
pub struct WatchLiveness(Arc<Mutex<Liveness>>);

#[derive(Debug, Default)]
struct Liveness {
    /// The connection of the open watch.
    open: Option<LastRead>,
    /// The last proof by a list or by a watch that is closed now.
    proven_at: Option<Instant>,
}

/// An open watch. Dropping it records the time of its last proof.
#[derive(Debug)]
pub(super) struct OpenWatch {
    liveness: WatchLiveness,
    last_read: LastRead,
}

// === impl WatchLiveness ===

impl WatchLiveness {
    /// Returns the time since the API server last sent something on the open watch's connection: an
    /// event, a bookmark, or over HTTP/2 the answer to a ping. While no watch is open, this is the
    /// time since the last proof by a list or a closed watch. Returns `None` before the first
    /// answer to a list or watch.
    pub fn age(&self) -> Option<Duration> {
        let liveness = self.0.lock();
        let open = liveness.open.as_ref().map(LastRead::at);
        open.max(liveness.proven_at).map(|at| at.elapsed())
    }

    /// Records that a list was received just now.
    pub(super) fn listed(&self) {
        self.0.lock().proven_at = Some(Instant::now());
    }

    /// Records that a watch was opened on the connection of `last_read`.
    pub(super) fn opened(&self, last_read: LastRead) -> OpenWatch {
        self.0.lock().open = Some(last_read.clone());
        OpenWatch {
            liveness: self.clone(),
            last_read,
        }
    }
}

// === impl OpenWatch ===

impl Drop for OpenWatch {
    /// Records the time of the watch's last proof. Other requests may use the connection from now
    /// on, and their answers prove nothing about watches.
    fn drop(&mut self) {
        let mut liveness = self.liveness.0.lock();
        liveness.open = None;
        liveness.proven_at = liveness.proven_at.max(Some(self.last_read.at()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::advance;

    use super::*;
    use crate::upstream::connect::connection::last_read::TimedIo;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_received_bytes_and_lists_prove_a_watch_alive() {
        let liveness = WatchLiveness::default();
        let seconds = || liveness.age().map(|age| age.as_secs());
        assert_eq!(seconds(), None);
        liveness.listed();
        advance(5 * SECOND).await;
        assert_eq!(seconds(), Some(5));

        let (near, mut far) = tokio::io::duplex(64);
        let mut connection = TimedIo::new(Box::new(near), false);
        let watch = liveness.opened(connection.last_read.clone());
        assert_eq!(seconds(), Some(0));
        advance(7 * SECOND).await;
        connection.write_all(b"ping").await.expect("written");
        assert_eq!(seconds(), Some(7));
        far.write_all(b"pong").await.expect("written");
        connection.read_exact(&mut [0; 4]).await.expect("read");
        assert_eq!(seconds(), Some(0));

        advance(SECOND).await;
        drop(watch);
        far.write_all(b"more").await.expect("written");
        connection.read_exact(&mut [0; 4]).await.expect("read");
        assert_eq!(seconds(), Some(1));
        drop(far);
        let end = connection.read(&mut [0; 4]).await.expect("the end");
        assert_eq!((end, seconds()), (0, Some(1)));
    }
}
