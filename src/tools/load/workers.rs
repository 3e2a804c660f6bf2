//! Threads with a runtime of their own.

use std::future::Future;
use std::io;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// A running thread that computes a `T`.
pub(super) struct Worker<T>(oneshot::Receiver<T>);

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread with this name, which executes the future that `task` returns.
    pub(super) fn start<F: Future<Output = T> + 'static>(
        name: String,
        task: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, result) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name(name).spawn(move || {
            // If the run was aborted, the receiver is gone and the result is not needed.
            let _ = sender.send(runtime.block_on(task()));
        })?;
        Ok(Self(result))
    }

    /// Waits for the result.
    pub(super) async fn finish(self) -> io::Result<T> {
        self.0.await.map_err(io::Error::other)
    }
}
