//! Wake-ups: the only signal from the writer to its readers.
//!
//! A reader that has caught up leaves its waker in a slot of its own, in the list of those who wait
//! for the same on the same thread. The writer takes all wakers that were left, or has the thread's
//! dispatcher take them. Slots are freed when their owner is dropped, so a list is as long as the
//! readers alive.

mod dispatcher;
mod registration;
mod slots;
mod wake_list;
mod wake_set;

pub use dispatcher::Dispatcher;
pub(in crate::cache) use registration::Registration;
pub(in crate::cache) use registration::ReplacedWaker;
#[cfg(test)]
pub(in crate::cache) use registration::before_registering;
pub(in crate::cache) use wake_set::WakeSet;
