//! Renders a text once for all requests that wait concurrently.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The shortest time between the starts of two renderings, because a rendering visits every cache
/// or every client.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// What is rendered at most once per second. Clones share the renderings.
#[derive(Clone)]
pub(super) struct SharedRendering<T> {
    last: Arc<Mutex<Option<Rendering<T>>>>,
}

#[derive(Clone)]
struct Rendering<T> {
    value: T,
    started: Instant,
}

impl<T: Clone + Send> SharedRendering<T> {
    pub(super) fn new() -> Self {
        Self {
            last: Arc::new(Mutex::new(None)),
        }
    }

    /// Returns what `render` returns at a time after this call. Calls that follow a rendering too
    /// soon wait for the next rendering, and share it. Cancel safe.
    pub(super) async fn get(&self, render: impl FnOnce() -> T + Send) -> T {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(rendering) = last.as_ref() {
            if rendering.started > arrived {
                return rendering.value.clone();
            }
            sleep_until(rendering.started + MIN_INTERVAL).await;
        }
        let started = Instant::now();
        let value = render();
        last.insert(Rendering { value, started }).value.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_share_renderings_and_never_get_an_old_one() {
        let (renderings, state) = (AtomicU32::new(0), AtomicU32::new(0));
        let render = || {
            renderings.fetch_add(1, Ordering::Relaxed);
            state.load(Ordering::Relaxed)
        };
        let shared = SharedRendering::new();
        let start = Instant::now();
        shared.get(render).await;
        assert_eq!(start.elapsed(), Duration::ZERO, "the first does not wait");
        state.store(1, Ordering::Relaxed);
        let all = join_all((0..1_000).map(|_| shared.get(render))).await;
        assert_eq!(renderings.load(Ordering::Relaxed), 2);
        assert_eq!(start.elapsed(), MIN_INTERVAL);
        assert!(all.iter().all(|value| *value == 1), "{all:?}");
    }
}
