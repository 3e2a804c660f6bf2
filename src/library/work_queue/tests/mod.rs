//! Tests of the queue as its users see it.

mod backoff;
mod delays;
mod metrics;
mod model;
mod priorities;
mod runs;
mod shutdown;
mod support;
mod workers;
