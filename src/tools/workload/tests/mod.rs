//! The cluster at the start and later, as its operations show it.

mod churn;
mod initial;
mod support;
