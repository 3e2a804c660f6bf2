//! Tests of controllers on fake sources, in paused time.

mod events;
mod history;
mod reconciles;
mod stop;
pub(crate) mod support;
