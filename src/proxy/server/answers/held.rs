//! Held: what an answer holds until its body is dropped.

use std::task::{Context, Poll};

use http::Response;
use kubefan_core::body::{Body, BodyGuard, guarded};

use crate::ledger::Charge;
use crate::server::limits::in_flight::Seat;
use crate::server::limits::shares::{RequestShare, SelectionShare};
use crate::server::upstream::forward::Right;

/// What an answer holds until its body is dropped. All of it is one guard, so that the events of a
/// watch pass through only one more body.
#[derive(Default)]
pub(in crate::server) struct Held {
    /// The seat of a GET or LIST.
    pub(in crate::server) seat: Option<Seat>,
    /// The place among the requests of the user.
    pub(in crate::server) request: Option<RequestShare>,
    /// The place among the selections without an index that the user watches.
    pub(in crate::server) selection: Option<SelectionShare>,
    /// The charge for the selection.
    pub(in crate::server) memory: Option<Charge>,
    /// Ends the body when the user has lost the right to it.
    pub(in crate::server) right: Option<Right>,
}

impl Held {
    /// Makes the body of `response` own these values, if there are any.
    pub(in crate::server) fn by(self, response: Response<Body>) -> Response<Body> {
        let is_empty = self.seat.is_none()
            && self.request.is_none()
            && self.selection.is_none()
            && self.memory.is_none()
            && self.right.is_none();
        guarded(response, (!is_empty).then_some(self))
    }
}

impl BodyGuard for Held {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.right {
            Some(right) => right.poll_end(cx),
            None => Poll::Pending,
        }
    }

    fn is_held(&self) -> bool {
        self.right.as_ref().is_some_and(BodyGuard::is_held)
    }
}
