//! The interface that the program implements.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::Request;

/// What follows a successful reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing until the next change.
    #[default]
    Done,
    /// Another reconcile after the object's backoff, as after an error. The wait grows with each
    /// requeue until the object is [`Action::Done`] or requeued after a fixed time.
    Requeue,
    /// Another reconcile after this time, or earlier if there is a change. This resets the backoff.
    RequeueAfter(Duration),
}

/// Brings the world into the state that one object describes.
///
/// A closure `Fn(Request) -> impl Future<Output = Result<Action, E>>` is a `Reconciler` too.
pub trait Reconciler: Send + Sync + 'static {
    /// The error of a failed reconcile.
    type Error: fmt::Display + Send;

    /// Reconciles one object. A reconciler reads the object's present state, for example from a
    /// lister: the request does not contain what changed. The reconciler is called again after each
    /// change, so it must do nothing if nothing is to be done.
    ///
    /// # Errors
    ///
    /// If the reconcile is to be repeated after the object's backoff.
    fn reconcile(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

impl<F, T, E> Reconciler for F
where
    F: Fn(Request) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Action, E>> + Send,
    E: fmt::Display + Send,
{
    type Error = E;

    fn reconcile(&self, request: Request) -> impl Future<Output = Result<Action, E>> + Send {
        self(request)
    }
}
