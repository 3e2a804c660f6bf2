//! Counts what the simulated API server serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Response;
use http_body_util::BodyExt;
use kubefan_proxy::server;
use kubefan_proxy::server::Body;
use memchr::memchr_iter;

/// What a simulated API server has served. Clones are cheap and share the counts.
#[derive(Clone, Default)]
pub struct Served(Arc<Counts>);

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    watches: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
}

/// Counts since the start, and the number of open watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedTotals {
    /// Requests that were answered, watches included.
    pub requests: u64,
    /// Watches that are open now.
    pub watches: u64,
    /// Events of watches, including bookmarks and the events for initial objects.
    pub events: u64,
    /// Bytes of all answers' bodies.
    pub bytes: u64,
}

/// Counts an open watch until it is dropped.
struct OpenWatch(Served);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Served {
    /// Returns the counts so far.
    pub fn totals(&self) -> ServedTotals {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServedTotals {
            requests: value(&self.0.requests),
            watches: value(&self.0.watches),
            events: value(&self.0.events),
            bytes: value(&self.0.bytes),
        }
    }

    /// Counts an answer, and its body while it is sent. The frames of a watch are lines.
    pub(super) fn count(&self, is_watch: bool, response: Response<Body>) -> Response<Body> {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let is_watch = is_watch && response.status().is_success();
        let open = is_watch.then(|| {
            self.0.watches.fetch_add(1, Ordering::Relaxed);
            OpenWatch(self.clone())
        });
        let served = self.clone();
        response.map(|body| {
            server::boxed(body.inspect_frame(move |frame| {
                if let Some(bytes) = frame.data_ref() {
                    served
                        .0
                        .bytes
                        .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if open.is_some() {
                        let lines = memchr_iter(b'\n', bytes).count();
                        served.0.events.fetch_add(lines as u64, Ordering::Relaxed);
                    }
                }
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_and_open_watches_are_counted() {
        let served = Served::default();
        let answer = |text: &'static str| Response::new(server::full(text));
        let list = served.count(false, answer("{}\n"));
        let watch = served.count(true, answer("{}\n{}\n"));
        let mut refused = answer("{}\n");
        *refused.status_mut() = http::StatusCode::GONE;
        let refused = served.count(true, refused);
        let totals = served.totals();
        assert_eq!((totals.requests, totals.watches, totals.bytes), (3, 1, 0));
        for answer in [list, watch, refused] {
            answer.into_body().collect().await.expect("a body");
        }
        let expected = ServedTotals {
            requests: 3,
            watches: 0,
            events: 2,
            bytes: 12,
        };
        assert_eq!(served.totals(), expected);
    }
}
