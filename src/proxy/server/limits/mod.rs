//! The limits that requests share: seats, the shares of users, and the memory for what several
//! clients share.

pub(super) mod budgets;
pub(super) mod in_flight;
pub(super) mod shares;
