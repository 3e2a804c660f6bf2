//! Wakes: the only signal from the writer to the readers.
//!
//! A reader that has to wait puts its waker into its slot of a list. Readers on one thread share a
//! list if they are woken together. The writer takes all wakers from the list and wakes them, or
//! puts the list into the inbox of the thread's dispatcher, which then wakes them on its thread. A
//! reader frees its slot when it is dropped, so lists do not grow.

mod dispatcher;
mod registration;
mod slots;
mod wake_list;
mod wake_set;

pub use dispatcher::Dispatcher;
#[cfg(test)]
pub(in crate::cache) use registration::before_registering;
pub(in crate::cache) use registration::{Registration, ReplacedWaker};
pub(in crate::cache) use wake_set::WakeSet;
