//! Waiting for a condition, with a deadline, instead of sleeping and hoping.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::sleep;

const PAUSE: Duration = Duration::from_millis(20);

/// Asks `probe` again until it gives a value.
///
/// # Panics
/// After `limit`, with the probe's last reason.
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

/// The future's value.
///
/// # Panics
/// When it isn't there after `limit`.
pub(crate) async fn within<F: Future>(what: &str, limit: Duration, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}
