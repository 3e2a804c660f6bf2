//! The limits that requests share: seats, the shares of users, and the memory for what several
//! clients share.

pub(super) mod budgets;
mod counts;
pub(super) mod in_flight;
pub(super) mod shares;
