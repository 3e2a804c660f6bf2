//! Tests of the initial cluster and of its changes, through the operations.

mod churn;
mod initial;
mod support;
