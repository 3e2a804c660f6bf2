//! Waits for a condition with a deadline, instead of sleeping for a fixed time.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(20);

/// Calls `probe` every 20 ms until it returns a value.
///
/// # Panics
/// Panics after `limit`, with the last error of `probe`.
pub(crate) async fn eventually<T, F, E>(what: &str, limit: Duration, mut probe: F) -> T
where
    F: AsyncFnMut() -> Result<T, E>,
    E: Display,
{
    let deadline = Instant::now() + limit;
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(reason) if Instant::now() >= deadline => {
                panic!("{what}: not within {limit:?}: {reason}")
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Awaits a future with a deadline.
///
/// # Panics
/// Panics if the future is not ready within `limit`.
pub(crate) async fn within<F: Future>(what: &str, limit: Duration, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
