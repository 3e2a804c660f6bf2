//! The limits that requests share: seats, the shares of users, and the memory for what several
//! clients share. Also counts reads that wait, to notice crowds.

pub(super) mod budgets;
mod counts;
pub(super) mod crowds;
pub(super) mod in_flight;
pub(super) mod shares;
