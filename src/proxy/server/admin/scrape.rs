//! Renders the metrics once for all scrapes that wait concurrently.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubefan_core::telemetry::Registry;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The shortest time between the starts of two renderings, because each rendering visits every
/// cache.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The metrics of a registry, rendered at most once per second. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedScrapes {
    registry: Registry,
    last: Arc<Mutex<Option<Scrape>>>,
}

/// The metrics at one time.
#[derive(Clone)]
pub(super) struct Scrape {
    pub(super) content_type: &'static str,
    pub(super) text: Bytes,
    started: Instant,
}

impl SharedScrapes {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            last: Arc::default(),
        }
    }

    /// Returns the metrics at a time after this call. Calls that follow a rendering too soon wait
    /// for the next rendering, and share it. Cancel safe.
    pub(super) async fn scrape(&self) -> Scrape {
        let arrived = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(scrape) = last.as_ref() {
            if scrape.started > arrived {
                return scrape.clone();
            }
            sleep_until(scrape.started + MIN_INTERVAL).await;
        }
        let started = Instant::now();
        let (content_type, text) = self.registry.render();
        let scrape = Scrape {
            content_type,
            text: text.into(),
            started,
        };
        last.insert(scrape).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn scrapes_share_renderings_and_never_get_an_old_one() {
        let registry = Registry::new();
        let renderings = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&renderings);
        registry.on_scrape(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let events = registry.counter("kubefan_test_total", "Counts.");
        let scrapes = SharedScrapes::new(registry);
        let start = Instant::now();
        scrapes.scrape().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "the first does not wait");
        events.inc();
        let shared = join_all((0..1_000).map(|_| scrapes.scrape())).await;
        assert_eq!(renderings.load(Ordering::Relaxed), 2);
        assert_eq!(start.elapsed(), MIN_INTERVAL);
        for scrape in shared {
            let text = String::from_utf8_lossy(&scrape.text).into_owned();
            assert!(text.contains("kubefan_test_total 1\n"), "{text}");
        }
    }
}
