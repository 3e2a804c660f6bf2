//! CoopBudget: limits the work of a task before other tasks on its thread run.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::task::yield_now;

/// The work that a task may do before it yields. A full budget is a fraction of a millisecond.
///
/// One unit is the work of sending one byte. Other work is charged as many units as bytes could be
/// sent in the time that it takes. Counting is cheaper than reading the clock, and gives the same
/// result in every test run.
#[derive(Debug, Default)]
pub struct CoopBudget {
    spent: usize,
}

impl CoopBudget {
    /// The units of work between two yields.
    pub const UNITS: usize = 512 << 10;

    /// Creates a full budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// Subtracts `units` of work that was done. Returns false if the budget is spent.
    pub fn charge(&mut self, units: usize) -> bool {
        self.spent = self.spent.saturating_add(units);
        !self.is_spent()
    }

    /// Returns true if the budget is spent, so that the task has to yield.
    pub fn is_spent(&self) -> bool {
        self.spent >= Self::UNITS
    }

    /// Refills the budget. Use this when the task has waited for another reason.
    pub fn renew(&mut self) {
        self.spent = 0;
    }

    /// Returns ready if the budget is not spent. Otherwise refills it, wakes the task
    /// and returns pending.
    pub fn poll_proceed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_spent() {
            self.renew();
            // Unlike `wake_by_ref`, `yield_now` also lets the runtime poll its sockets first.
            ready!(pin!(yield_now()).poll(cx));
        }
        Poll::Ready(())
    }

    /// Yields and refills the budget if it is spent. Cancel safe.
    pub async fn proceed(&mut self) {
        poll_fn(|cx| self.poll_proceed(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_spent_budget_yields_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut budget = CoopBudget::new();
        assert!(budget.charge(CoopBudget::UNITS - 1));
        assert!(budget.poll_proceed(&mut cx).is_ready());
        assert!(!budget.charge(1));
        assert!(budget.poll_proceed(&mut cx).is_pending());
        assert!(budget.poll_proceed(&mut cx).is_ready());
        assert!(!budget.charge(usize::MAX));
        assert!(!budget.charge(usize::MAX));
        budget.renew();
        assert!(budget.poll_proceed(&mut cx).is_ready());
    }
}
