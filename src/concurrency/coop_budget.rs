//! How much a task does before the others on its thread run.

use std::future::Future;
use std::pin::pin;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use tokio::task::yield_now;

/// The work a task may do before it yields: a fraction of a millisecond.
///
/// Work is counted in bytes sent; what costs more or less per byte is charged as more or fewer of
/// them. Counting is cheaper than a look at the clock, and a test can count too.
#[derive(Debug, Default)]
pub struct CoopBudget {
    spent: usize,
}

impl CoopBudget {
    /// Units of work between two yields.
    pub const UNITS: usize = 512 << 10;

    /// A whole budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// Charges work that was done. Returns false once nothing is left.
    pub fn charge(&mut self, units: usize) -> bool {
        self.spent = self.spent.saturating_add(units);
        !self.is_spent()
    }

    /// True when the task has to yield.
    pub fn is_spent(&self) -> bool {
        self.spent >= Self::UNITS
    }

    /// Makes the budget whole, for a task that waits anyway.
    pub fn renew(&mut self) {
        self.spent = 0;
    }

    /// Ready while something is left; else pending once, woken again, and then whole.
    pub fn poll_proceed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_spent() {
            self.renew();
            // Unlike a plain wake-up this lets the runtime look at its sockets, too.
            ready!(pin!(yield_now()).poll(cx));
        }
        Poll::Ready(())
    }

    /// Yields if nothing is left. Cancel safe.
    pub async fn proceed(&mut self) {
        if self.is_spent() {
            self.renew();
            yield_now().await;
        }
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
