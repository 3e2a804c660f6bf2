//! The limits that requests share: seats, the shares of users, and the memory for what several
//! clients share. Also counts the GETs that wait, to notice crowds of them.

pub(super) mod budgets;
mod counts;
pub(super) mod crowds;
pub(super) mod in_flight;
pub(super) mod shares;
