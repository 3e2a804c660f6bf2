//! Frees large values on another thread.

use tokio::runtime::Handle;

/// Drops `value` on a thread that runs no tasks.
///
/// Freeing a hundred thousand objects takes many milliseconds, and no other task of this thread
/// could run during this time. Outside of a runtime, the value is dropped at once.
pub fn drop_elsewhere<T: Send + 'static>(value: T) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(move || drop(value));
    }
}
