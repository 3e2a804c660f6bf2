//! Replaces kubefan's file of the same name by loom's types.
//!
//! loom treats `SeqCst` like `AcqRel`, which is weaker than the language promises. So the atomics
//! here add a `SeqCst` fence before each such read and after each such write, and a `SeqCst` store
//! is a swap, as it is on x86. Without that, loom lets a swap ignore a store that was made before.

use std::sync::atomic::Ordering;

use loom::sync::atomic::fence;

/// kubefan declares its variable with `const`, which loom's macro does not take.
macro_rules! loom_thread_local {
    (static $name:ident: $type:ty = const { $init:expr };) => {
        loom::thread_local! {
            static $name: $type = $init;
        }
    };
}
pub(in crate::cache) use loom_thread_local as thread_local;

#[derive(Debug)]
pub(in crate::cache) struct AtomicBool(loom::sync::atomic::AtomicBool);

#[derive(Debug)]
pub(in crate::cache) struct AtomicU64(loom::sync::atomic::AtomicU64);

#[derive(Debug, Default)]
pub(in crate::cache) struct Mutex<T>(loom::sync::Mutex<T>);

#[derive(Debug, Default)]
pub(in crate::cache) struct RwLock<T>(loom::sync::RwLock<T>);

fn fence_if_total(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

impl AtomicBool {
    pub(in crate::cache) fn new(value: bool) -> Self {
        Self(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(in crate::cache) fn store(&self, value: bool, order: Ordering) {
        match order {
            Ordering::SeqCst => {
                self.swap(value, order);
            }
            order => self.0.store(value, order),
        }
    }

    pub(in crate::cache) fn swap(&self, value: bool, order: Ordering) -> bool {
        fence_if_total(order);
        let before = self.0.swap(value, order);
        fence_if_total(order);
        before
    }
}

impl AtomicU64 {
    pub(in crate::cache) fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        fence_if_total(order);
        let before = self.0.swap(value, order);
        fence_if_total(order);
        before
    }

    pub(in crate::cache) fn load(&self, order: Ordering) -> u64 {
        fence_if_total(order);
        self.0.load(order)
    }

    pub(in crate::cache) fn store(&self, value: u64, order: Ordering) {
        match order {
            Ordering::SeqCst => {
                self.swap(value, order);
            }
            order => self.0.store(value, order),
        }
    }
}

impl<T> Mutex<T> {
    pub(in crate::cache) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no thread panics with a lock")
    }
}

impl<T> RwLock<T> {
    pub(in crate::cache) fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    pub(in crate::cache) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().expect("no thread panics with a lock")
    }

    pub(in crate::cache) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().expect("no thread panics with a lock")
    }
}
