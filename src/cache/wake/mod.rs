//! Wake-ups: the only signal from the writer to its readers.

mod dispatcher;
mod wake_set;

pub use dispatcher::Dispatcher;
pub(in crate::cache) use wake_set::Registration;
pub(in crate::cache) use wake_set::Replaced;
pub(in crate::cache) use wake_set::WakeSet;
#[cfg(test)]
pub(in crate::cache) use wake_set::before_registering;
