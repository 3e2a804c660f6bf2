//! The runtime that runs connections to the API server. It is not the runtime of the request that
//! opened the connection, because other threads' requests use the connection too.

use std::future::Future;

use hyper::rt::Executor;
use tokio::runtime::Handle;
use tokio::task::JoinError;

/// Runs futures on the runtime that created the connector.
#[derive(Clone)]
pub(in crate::upstream) struct RuntimeExecutor(Handle);

impl RuntimeExecutor {
    /// Creates an executor for the current runtime.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(in crate::upstream::connect) fn current() -> RuntimeExecutor {
        RuntimeExecutor(Handle::current())
    }

    /// Runs `future` on this runtime and returns its output. If the caller is on another runtime,
    /// `future` is spawned, and continues even if the returned future is dropped.
    pub(in crate::upstream::connect) async fn run<F>(
        &self,
        future: F,
    ) -> Result<F::Output, JoinError>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        if Handle::current().id() == self.0.id() {
            return Ok(future.await);
        }
        self.0.spawn(future).await
    }
}

impl<F> Executor<F> for RuntimeExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
