//! The atomics, locks and thread-local variables of the wake protocol. The crate `tests/loom` has
//! another version of this file, and runs the protocol in all orders in which threads can meet.

pub(in crate::cache) use std::sync::atomic::{AtomicBool, AtomicU64};
pub(in crate::cache) use std::thread_local;

pub(in crate::cache) use parking_lot::{Mutex, RwLock};
