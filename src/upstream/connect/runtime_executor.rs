//! Where connections to the API server live: not on the thread of the client that happened to be the
//! first to need one, since others use them too.

use std::future::Future;

use hyper::rt::Executor;
use tokio::runtime::Handle;
use tokio::task::JoinError;

/// The runtime that a connector was made on.
#[derive(Clone)]
pub(super) struct RuntimeExecutor(Handle);

impl RuntimeExecutor {
    /// The current runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn current() -> RuntimeExecutor {
        RuntimeExecutor(Handle::current())
    }

    /// What `future` gives, which runs on this runtime, and goes on there when this is dropped.
    pub(super) async fn run<F>(&self, future: F) -> Result<F::Output, JoinError>
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
